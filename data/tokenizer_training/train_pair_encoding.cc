// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/pipeline_normalizer.h"
#include "data/tokenizer/pipeline_splitter.h"
#include "data/tokenizer/split_patterns.h"
#include "data/tokenizer/tokenizer_json_text.h"
#include "data/tokenizer_training/pair_trainer.h"
#include "data/tokenizer_training/trained_tokenizer.h"

namespace tessera::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kPartBytes = 1 << 20;

// A family of byte-level BPE; its first special token begins texts where `begins`.
struct ByteFamily {
  const char* name;
  std::string_view pattern;  // that text is cut by; empty: GPT-2's
  bool composes = false;     // texts are NFC
  bool begins = false;
  const char* tokenizer_class;
  std::vector<std::string> special_tokens;
  const char* eos_token;
};

const std::vector<ByteFamily>& ByteFamilies() {
  static const auto* families = new std::vector<ByteFamily>(
      {{.name = "gpt2",
        .pattern = "",
        .tokenizer_class = "GPT2Tokenizer",
        .special_tokens = {"<|endoftext|>"},
        .eos_token = "<|endoftext|>"},
       {.name = "llama3",
        .pattern = kLlama3Pattern,
        .begins = true,
        .tokenizer_class = "PreTrainedTokenizerFast",
        .special_tokens = {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                           "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"},
        .eos_token = "<|end_of_text|>"},
       {.name = "qwen2",
        .pattern = kQwen2Pattern,
        .composes = true,
        .tokenizer_class = "Qwen2Tokenizer",
        .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
        .eos_token = "<|endoftext|>"}});
  return *families;
}

constexpr const char* kBert = "bert";
const std::vector<std::string>& BertTokens() {
  static const auto* tokens =
      new std::vector<std::string>({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  return *tokens;
}

json ByteLevel(bool splits) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", splits}};
}

// How a family cuts text, as tokenizer.json says it.
struct Cutting {
  json normalizer;
  json pre_tokenizer;
};

Cutting CuttingOf(const ByteFamily& family) {
  Cutting cutting;
  if (family.composes) cutting.normalizer = {{"type", "NFC"}};
  if (family.pattern.empty()) {
    cutting.pre_tokenizer = ByteLevel(true);
  } else {
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", family.pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    cutting.pre_tokenizer = {{"type", "Sequence"},
                             {"pretokenizers", json::array({split, ByteLevel(false)})}};
  }
  return cutting;
}

Cutting BertCutting(bool lower_case) {
  return {.normalizer = {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", true},
                         {"strip_accents", nullptr},
                         {"lowercase", lower_case}},
          .pre_tokenizer = {{"type", "BertPreTokenizer"}}};
}

// A part of the rest of a text. Whatever the family, no word goes over a blank behind a letter of
// ASCII, nor does anything that is composed.
std::string_view TakePart(std::string_view* rest) {
  size_t end = kPartBytes;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  while (end < rest->size() && !((*rest)[end] == ' ' && is_letter((*rest)[end - 1]))) ++end;
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(part.size());
  return part;
}

class WordCounter {
 public:
  static StatusOr<WordCounter> Make(const Cutting& cutting) {
    TESSERA_ASSIGN_OR_RETURN(auto normalizer,
                             PipelineNormalizer::Parse(JsonPart(cutting.normalizer, "normalizer")));
    TESSERA_ASSIGN_OR_RETURN(
        auto splitter, PipelineSplitter::Parse(JsonPart(cutting.pre_tokenizer, "pre_tokenizer")));
    splitter.set_as_bytes(true);
    return WordCounter(std::move(normalizer), std::move(splitter));
  }

  void Add(std::string_view text) {
    ++num_texts_;
    std::string normal;
    while (!text.empty()) {
      std::string_view part = TakePart(&text);
      if (!normalizer_.changes_nothing()) part = normal = normalizer_.Normalize(part);
      splitter_.ForEachWord(part, /*at_begin=*/true, [&](std::string_view word) {
        const auto at = counts_.find(word);
        if (at != counts_.end()) {
          ++at->second;
        } else {
          counts_.emplace(word, 1);
        }
      });
    }
  }

  // In the order of their bytes.
  std::vector<CountedWord> Words() const {
    std::vector<CountedWord> words;
    words.reserve(counts_.size());
    for (const auto& [word, count] : counts_) {
      words.push_back({splitter_.ends_in_bytes() ? PieceOfBytes(word) : word, count});
    }
    std::sort(words.begin(), words.end(),
              [](const CountedWord& a, const CountedWord& b) { return a.text < b.text; });
    return words;
  }
  int64_t num_texts() const { return num_texts_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  WordCounter(PipelineNormalizer normalizer, PipelineSplitter splitter)
      : normalizer_(std::move(normalizer)), splitter_(std::move(splitter)) {}

  PipelineNormalizer normalizer_;
  PipelineSplitter splitter_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
  int64_t num_texts_ = 0;
};

std::string VocabOf(const LearntPairs& learnt) {
  std::vector<std::pair<int32_t, std::string>> vocab;
  for (const std::string& piece : learnt.vocab) {
    vocab.emplace_back(static_cast<int32_t>(vocab.size()), piece);
  }
  return VocabJson(std::move(vocab));
}

std::vector<std::string> MergesOf(const LearntPairs& learnt) {
  std::vector<std::string> merges;
  for (const auto& [left, right] : learnt.merges) {
    merges.push_back(learnt.vocab[static_cast<size_t>(left)] + " " +
                     learnt.vocab[static_cast<size_t>(right)]);
  }
  return merges;
}

// Of a text, or of two, behind the token that begins each.
RowTemplate BegunRow(bool pair) {
  RowTemplate row = {.items = {{0, 0}, {RowTemplate::kFirst, 0}}};
  if (pair) row.items.insert(row.items.end(), {{0, 1}, {RowTemplate::kSecond, 1}});
  return row;
}

std::string WholeFile(const ByteFamily& family, const Cutting& cutting, const LearntPairs& learnt) {
  TokenizerJson whole = {.added_tokens = {},
                         .normalizer = cutting.normalizer.dump(),
                         .pre_tokenizer = cutting.pre_tokenizer.dump(),
                         .post_processor = ByteLevel(true).dump(),
                         .decoder = ByteLevel(true).dump(),
                         .model = ""};
  for (const std::string& token : family.special_tokens) {
    whole.added_tokens.push_back(
        {.content = token, .id = static_cast<int32_t>(whole.added_tokens.size())});
  }
  if (family.begins) {
    whole.post_processor = TemplateJson(BegunRow(false), BegunRow(true), [&](int32_t id) {
      return family.special_tokens[static_cast<size_t>(id)];
    });
  }
  BpeJson bpe = {.vocab = VocabOf(learnt), .merges = ""};
  for (const std::string& merge : MergesOf(learnt)) {
    bpe.merges += (bpe.merges.empty() ? "" : ", ") + JsonQuoted(merge);
  }
  whole.model = bpe.Text();
  return whole.Text();
}

std::string ByteConfig(const ByteFamily& family) {
  ordered_json config;
  config["tokenizer_class"] = family.tokenizer_class;
  const std::string name = family.name;
  if (family.begins || name == "gpt2") config["bos_token"] = family.special_tokens[0];
  config["eos_token"] = family.eos_token;
  if (name == "gpt2") config["unk_token"] = family.eos_token;
  if (name == "qwen2") config["pad_token"] = family.eos_token;
  config["add_prefix_space"] = false;
  config["clean_up_tokenization_spaces"] = false;
  return config.dump(2) + "\n";
}

std::string BertConfig(bool lower_case) {
  const ordered_json config = {{"tokenizer_class", "BertTokenizer"},
                               {"do_lower_case", lower_case},
                               {"unk_token", "[UNK]"},
                               {"sep_token", "[SEP]"},
                               {"pad_token", "[PAD]"},
                               {"cls_token", "[CLS]"},
                               {"mask_token", "[MASK]"}};
  return config.dump(2) + "\n";
}

// What is SentencePiece's alone.
Status CheckOptions(const TokenizerTrainingOptions& options, bool bytes) {
  const TokenizerTrainingOptions defaults;
  const auto no = [&](const char* option, const char* why) {
    return InvalidArgument(option, " is not for ", options.family, ": ", why);
  };
  const std::string type = bytes ? "bpe" : "wordpiece";
  if (!options.type.empty() && options.type != type) {
    return InvalidArgument("tokenizer type '", options.type, "' is not for ", options.family,
                           ", which is ", type);
  }
  if (!options.normalization.empty()) {
    return no("normalization", "the family says what is done with text");
  }
  if (options.max_sentences != defaults.max_sentences) {
    return no("max_sentences", "it learns from words and how often they come, not from lines");
  }
  if (bytes && options.lower_case) return no("lower_case", "its text stays as it is");
  if (bytes && options.character_coverage != defaults.character_coverage) {
    return no("character_coverage", "every byte is a piece");
  }
  return OkStatus();
}

}  // namespace

std::vector<std::string> PairEncodingFamilies() {
  std::vector<std::string> names;
  for (const ByteFamily& family : ByteFamilies()) names.emplace_back(family.name);
  names.emplace_back(kBert);
  return names;
}

StatusOr<TrainedTokenizer> TrainPairEncoding(std::vector<std::string> files,
                                             const TokenizerTrainingOptions& options) {
  const std::vector<ByteFamily>& families = ByteFamilies();
  const auto family = std::find_if(families.begin(), families.end(),
                                   [&](const ByteFamily& f) { return options.family == f.name; });
  const bool bytes = family != families.end();
  TESSERA_CHECK(bytes || options.family == kBert, "TrainPairEncoding", options.family);
  TESSERA_RETURN_IF_ERROR(CheckOptions(options, bytes));
  const Cutting cutting = bytes ? CuttingOf(*family) : BertCutting(options.lower_case);
  PairTrainerOptions trainer = {.vocab_size = options.vocab_size,
                                .min_frequency = options.min_frequency,
                                .special_tokens = bytes ? family->special_tokens : BertTokens(),
                                .character_coverage = bytes ? 1 : options.character_coverage,
                                .continuing_prefix = bytes ? "" : "##"};
  for (int byte = 0; bytes && byte < 256; ++byte) {
    trainer.alphabet.push_back(BytePiece(static_cast<uint8_t>(byte)));
  }

  const std::string first = files[0];
  TESSERA_ASSIGN_OR_RETURN(WordCounter counter, WordCounter::Make(cutting));
  TESSERA_RETURN_IF_ERROR(ForEachTrainingText(std::move(files), options,
                                              [&](std::string_view text, const std::string&) {
                                                counter.Add(text);
                                                return OkStatus();
                                              }));
  const std::vector<CountedWord> words = counter.Words();
  if (words.empty()) return InvalidArgument(first, ": no words to learn from");
  const LearntPairs learnt = LearnPairs(words, trainer);
  if (std::ssize(learnt.vocab) > options.vocab_size) {
    return InvalidArgument("vocab_size ", options.vocab_size, " is less than the ",
                           learnt.vocab.size(), " special tokens and ",
                           bytes ? "bytes" : "characters of the text");
  }

  TrainedTokenizer made = {
      .num_pieces = std::ssize(learnt.vocab), .num_texts = counter.num_texts(), .of_lines = false};
  if (!bytes) {
    made.files = {{"vocab.txt", Joined(learnt.vocab, "\n") + "\n"},
                  {"tokenizer_config.json", BertConfig(options.lower_case)}};
    return made;
  }
  made.files = {{"tokenizer.json", WholeFile(*family, cutting, learnt)},
                {"tokenizer_config.json", ByteConfig(*family)},
                {"vocab.json", VocabOf(learnt) + "\n"},
                {"merges.txt", "#version: 0.2\n" + Joined(MergesOf(learnt), "\n") + "\n"}};
  return made;
}

}  // namespace tessera::data
