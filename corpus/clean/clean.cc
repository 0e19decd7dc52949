// SPDX-License-Identifier: Apache-2.0
#include "corpus/clean/clean.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "corpus/filters/quality.h"
#include "corpus/filters/text_facts.h"
#include "corpus/language/identify.h"
#include "corpus/repair/repair.h"
#include "data/dataset/token_cache.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::corpus {
namespace {

std::optional<NormalForm> FormOf(const std::string& name) {
  if (name == "none") return std::nullopt;
  return name == "nfkc" ? NormalForm::kNfkc : NormalForm::kNfc;
}

std::string Shown(double score) { return absl::StrFormat("%.4f", score); }

StatusOr<std::set<std::string, std::less<>>> ReadWords(const std::string& path) {
  std::set<std::string, std::less<>> words;
  if (path.empty()) return words;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    std::string word = data::LowerCased(line);
    while (word.ends_with('\r') || word.ends_with(' ')) word.pop_back();
    if (!word.empty()) words.insert(std::move(word));
  }
  return words;
}

// "a,b" as two.
std::set<std::string> Values(const std::vector<std::string>& texts) {
  std::set<std::string> values;
  for (const std::string& text : texts) {
    for (const absl::string_view value : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
      values.emplace(absl::StripAsciiWhitespace(value));
    }
  }
  return values;
}

// The rules of one run, in their order: which data set, what is mended, which language, which
// lines, which quality, how long.
class Cleaner {
 public:
  static StatusOr<Cleaner> Create(const CleanOptions& options) {
    TESSERA_RETURN_IF_ERROR(options.Check("clean"));
    Cleaner cleaner(options);
    TESSERA_ASSIGN_OR_RETURN(cleaner.bad_words_, ReadWords(options.bad_words));
    if (!options.tokenizer.empty()) {
      TESSERA_ASSIGN_OR_RETURN(cleaner.tokenizer_, data::LoadTokenizer(options.tokenizer));
    }
    return cleaner;
  }

  Verdict operator()(Document& document, Counts* counts) const {
    if (Verdict verdict = DataSet(document); !verdict.filter.empty()) return verdict;
    if (!document.has_text()) return {"no_text", ""};
    std::string text = document.text();
    if (options_.repair) text = RepairText(text, {.form = FormOf(options_.normal_form)});
    Verdict verdict = Language(text, document);
    if (verdict.filter.empty() && Asked("c4")) verdict = C4(&text, counts);
    if (verdict.filter.empty()) verdict = Quality(text);
    if (verdict.filter.empty()) verdict = Length(text);
    if (text != document.text()) {
      ++(*counts)["changed"];
      document.set_text(std::move(text));
    }
    return verdict;
  }

  const data::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  explicit Cleaner(const CleanOptions& options)
      : options_(options), keep_(Values(options.keep)), drop_(Values(options.drop)) {}

  Verdict DataSet(const Document& document) const {
    if (options_.key.empty()) return {};
    const std::string value = document.ValueAt(options_.key);
    const bool stays = (options_.keep.empty() || keep_.contains(value)) && !drop_.contains(value);
    if (stays) return {};
    return {"key", Concat(options_.key, "=", value)};
  }

  bool Asked(std::string_view filter) const {
    return std::ranges::find(options_.filters, filter) != options_.filters.end();
  }

  Verdict Language(std::string_view text, Document& document) const {
    if (options_.language.empty() && !options_.tag) return {};
    const corpus::Language found = IdentifyLanguage(text);
    if (options_.tag) {
      document.Set("language", Concat("\"", found.code, "\""));
      document.Set("language_score", Shown(found.score));
    }
    if (options_.language.empty()) return {};
    const bool wanted = std::ranges::find(options_.language, found.code) != options_.language.end();
    if (wanted && found.score >= options_.min_language_score) return {};
    return {"language", Concat(found.code, " ", Shown(found.score))};
  }

  Verdict Quality(std::string_view text) const {
    const bool quality = Asked("gopher_quality"), repetition = Asked("gopher_repetition");
    if (!quality && !repetition && bad_words_.empty()) return {};
    const TextFacts facts(text);
    Verdict verdict;
    if (repetition) verdict = GopherRepetition(facts);
    if (verdict.filter.empty() && quality) verdict = GopherQuality(facts);
    if (verdict.filter.empty() && !bad_words_.empty()) verdict = BadWords(facts, bad_words_);
    return verdict;
  }

  Verdict Length(std::string_view text) const {
    const int64_t characters = CountCharacters(text);
    if (characters < options_.min_characters ||
        (options_.max_characters && characters > *options_.max_characters)) {
      return {"characters", std::to_string(characters)};
    }
    if (options_.min_tokens == 0 && !options_.max_tokens) return {};
    const int64_t tokens = tokenizer_ ? std::ssize(tokenizer_->Encode(text)) : CountPieces(text);
    if (tokens < options_.min_tokens || (options_.max_tokens && tokens > *options_.max_tokens)) {
      return {"tokens", std::to_string(tokens)};
    }
    return {};
  }

  CleanOptions options_;
  std::set<std::string> keep_, drop_;
  std::set<std::string, std::less<>> bad_words_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
};

}  // namespace

Status CleanOptions::Check(const std::string& source) const {
  const bool has_values = !keep.empty() || !drop.empty();
  if (key.empty() && has_values) {
    return InvalidArgument(source, ": '", keep.empty() ? "drop" : "keep",
                           "' needs 'key', the member with these values");
  }
  if (!key.empty() && !has_values) {
    return InvalidArgument(source, ": 'key' needs 'keep' or 'drop', values of ", key);
  }
  const auto range = [&](int64_t least, std::optional<int64_t> most, const char* what) -> Status {
    if (least <= most.value_or(least)) return OkStatus();
    return InvalidArgument(source, ": no document has at least ", least, " and at most ", *most,
                           " ", what, "; change 'min_", what, "' or 'max_", what, "'");
  };
  TESSERA_RETURN_IF_ERROR(range(min_tokens, max_tokens, "tokens"));
  return range(min_characters, max_characters, "characters");
}

const OptionTable& CleanOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<CleanOptions>("Cleaning")
          .Include<CleanOptions, FilterFiles>()
          .Add("key", &CleanOptions::key,
               "the member that says which data set a document is of: `dataset`, or `meta.set` for "
               "one within another",
               {.unset = "none"})
          .Add("keep", &CleanOptions::keep,
               "values of `key` whose documents stay, with commas; without the member none does",
               {.unset = "all"})
          .Add("drop", &CleanOptions::drop,
               "values of `key` whose documents are dropped, with commas", {.unset = "none"})
          .Add("repair", &CleanOptions::repair,
               "mend broken Unicode: text that was decoded wrongly, entities, controls, wide "
               "letters, ligatures, line ends")
          .Add("normal_form", &CleanOptions::normal_form, "Unicode's normal form of mended texts",
               {.choices = {"nfc", "nfkc", "none"}})
          .Add("language", &CleanOptions::language,
               "languages that stay, as `en,zh`; und is text in a language that is not known",
               {.choices = LanguageCodes(), .unset = "all"})
          .Add("min_language_score", &CleanOptions::min_language_score,
               "how sure the language must be", {.least = 0, .most = 1})
          .Add("tag", &CleanOptions::tag,
               "set the members `language` and `language_score` of documents")
          .Add("filters", &CleanOptions::filters,
               "rules of quality, for English: Gopher's of words and of repetition, C4's of lines "
               "and pages",
               {.choices = {"gopher_quality", "gopher_repetition", "c4"}, .unset = "none"})
          .Add("bad_words", &CleanOptions::bad_words,
               "a file of words and phrases, one a line, that no document may have",
               {.unset = "none"})
          .Add("min_tokens", &CleanOptions::min_tokens,
               "least tokens; without a tokenizer, pieces of GPT-2's pattern, and each ideograph",
               {.least = 0})
          .Add("max_tokens", &CleanOptions::max_tokens, "most tokens",
               {.least = 1, .unset = "any number"})
          .Add("tokenizer", &CleanOptions::tokenizer, "a tokenizer's folder, to count tokens with",
               {.unset = "none"})
          .Add("min_characters", &CleanOptions::min_characters, "least characters", {.least = 0})
          .Add("max_characters", &CleanOptions::max_characters, "most characters",
               {.least = 1, .unset = "any number"}));
  return *table;
}

StatusOr<Counts> RunClean(const CleanOptions& options, const RunContext& context) {
  DocumentPass pass;
  pass.name = "clean";
  pass.files = options;
  const nlohmann::ordered_json all = CleanOptions::Table().ToJson(&options);
  pass.made_from = nlohmann::json(all);
  for (const char* key : {"input", "output", "dropped", "text_key"}) pass.made_from->erase(key);
  TESSERA_ASSIGN_OR_RETURN(const Cleaner cleaner, Cleaner::Create(options));
  // What these files hold counts, not their names alone.
  if (!options.bad_words.empty()) {
    TESSERA_ASSIGN_OR_RETURN(pass.made_from["bad_words"], data::DescribeFiles({options.bad_words}));
  }
  if (cleaner.tokenizer() != nullptr) {
    pass.made_from["tokenizer"] = cleaner.tokenizer()->Fingerprint();
  }
  pass.apply = [&](Document& document, Counts* counts) { return cleaner(document, counts); };
  return RunDocuments(pass, context);
}

}  // namespace tessera::corpus
