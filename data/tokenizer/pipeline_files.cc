// SPDX-License-Identifier: Apache-2.0
// Writes a tokenizer as a folder that Tessera, Hugging Face's transformers and its tokenizers load.
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/tokenizer_json_text.h"

namespace tessera::data {
namespace {

// "key": true or false, as a part says.
std::string Flag(const JsonPart& part, const char* key, bool fallback) {
  return Concat("\"", key, "\": ", JsonBool(part.Bool(key, fallback).value_or(fallback)));
}

std::vector<std::pair<int32_t, std::string>> ById(const PipelineVocab& vocab, bool keeps_empty) {
  std::vector<std::pair<int32_t, std::string>> by_id;
  by_id.reserve(vocab.entries().size());
  for (const auto& [piece, id] : vocab.entries()) {
    if (keeps_empty || !piece.empty()) by_id.emplace_back(id, piece);
  }
  return by_id;
}

}  // namespace

// The tokenizer.json of a class. `spells_out`: with what its absence means, for fingerprints.
std::string PipelineTokenizer::JsonText(bool spells_out) const {
  const JsonPart root(json_, "");
  const JsonPart normalizer = root["normalizer"];
  const JsonPart splitter = root["pre_tokenizer"];
  const std::string unk = model_->unk_token();
  const std::string vocab = VocabJson(ById(model_->vocab(), is_byte_level()));
  TokenizerJson whole = {.added_tokens = added_, .model = ""};
  if (class_ == TokenizerClass::kBert) {
    std::string strip = normalizer["strip_accents"].value().dump();
    if (spells_out && strip == "null") {
      strip = JsonBool(normalizer.Bool("lowercase", true).value_or(true));
    }
    whole.normalizer =
        Concat("{\"type\": \"BertNormalizer\", \"clean_text\": true, ",
               Flag(normalizer, "handle_chinese_chars", true), ", \"strip_accents\": ", strip, ", ",
               Flag(normalizer, "lowercase", true), "}");
    whole.pre_tokenizer = R"({"type": "BertPreTokenizer"})";
    whole.post_processor = TemplateJson(*row_template(false), *row_template(true),
                                        [this](int32_t id) { return std::string(TokenText(id)); });
    whole.decoder = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})";
    whole.model = Concat("{\"type\": \"WordPiece\", \"unk_token\": ", JsonQuoted(unk),
                         ", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": "
                         "100,\n\"vocab\": ",
                         vocab, "}");
    return whole.Text();
  }
  const std::string blank = Flag(splitter, "add_prefix_space", true);
  whole.pre_tokenizer = whole.decoder = whole.post_processor =
      Concat("{\"type\": \"ByteLevel\", ", blank, ", \"trim_offsets\": false, ",
             Flag(splitter, "use_regex", true), "}");
  if (class_ == TokenizerClass::kRoberta) {
    const auto pair = [&](int32_t id) {
      return Concat("[", JsonQuoted(TokenText(id)), ", ", id, "]");
    };
    whole.post_processor =
        Concat("{\"type\": \"RobertaProcessing\", \"sep\": ", pair(*sep_id_),
               ", \"cls\": ", pair(*cls_id_), ", \"trim_offsets\": true, ", blank, "}");
  }
  const JsonPart model = root["model"];
  BpeJson bpe = {.fuse_unk = model.Bool("fuse_unk", false).value_or(false),
                 .ignore_merges = model.Bool("ignore_merges", false).value_or(false),
                 .vocab = vocab,
                 .merges = ""};
  if (!unk.empty()) bpe.unk_token = JsonQuoted(unk);
  for (const auto& [left, right] : merges_) {
    bpe.merges += bpe.merges.empty() ? "" : ", ";
    bpe.merges += JsonQuoted(Concat(left, " ", right));
  }
  whole.model = bpe.Text();
  return whole.Text();
}

// A line for each name: ,\n  "eos_token": "</s>"
std::string PipelineTokenizer::NameLines(
    std::initializer_list<std::pair<const char*, std::optional<int32_t>>> names) const {
  std::string lines;
  for (const auto& [key, id] : names) {
    if (id) lines += Concat(",\n  \"", key, "\": ", JsonQuoted(TokenText(*id)));
  }
  return lines;
}

std::vector<TokenizerFile> PipelineTokenizer::Files() const {
  if (class_ == TokenizerClass::kGeneral) return {{"tokenizer.json", json_text_}};
  const JsonPart root(json_, "");
  const PipelineVocab& vocab = model_->vocab();
  const std::optional<int32_t> unk =
      model_->unk_token().empty() ? std::nullopt : IdOf(model_->unk_token());
  if (class_ == TokenizerClass::kBert) {
    const JsonPart normalizer = root["normalizer"];
    std::string text;
    for (int32_t id = 0; id < vocab.size(); ++id) text += Concat(vocab.Piece(id), "\n");
    const auto flag = [&](const char* key) {
      return JsonBool(normalizer.Bool(key, true).value_or(true));
    };
    return {{"vocab.txt", std::move(text)},
            {"tokenizer.json", JsonText()},
            {"tokenizer_config.json",
             Concat("{\n  \"tokenizer_class\": \"BertTokenizer\",\n  \"do_lower_case\": ",
                    flag("lowercase"),
                    ",\n  \"tokenize_chinese_chars\": ", flag("handle_chinese_chars"),
                    ",\n  \"strip_accents\": ", normalizer["strip_accents"].value().dump(),
                    NameLines({{"unk_token", unk},
                               {"cls_token", cls_id_},
                               {"sep_token", sep_id_},
                               {"pad_token", pad_id_},
                               {"mask_token", mask_id_}}),
                    "\n}\n")}};
  }
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : merges_) merges += left + " " + right + "\n";
  // transformers takes <|endoftext|> for all three where they are not named.
  const std::string config =
      Concat("{\n  \"tokenizer_class\": \"",
             class_ == TokenizerClass::kRoberta ? "RobertaTokenizer" : "GPT2Tokenizer", "\",\n  ",
             Flag(root["pre_tokenizer"], "add_prefix_space", true),
             NameLines({{"eos_token", eos_id_},
                        {"bos_token", bos_id_ ? bos_id_ : eos_id_},
                        {"unk_token", unk ? unk : eos_id_},
                        {"pad_token", pad_id_}}),
             "\n}\n");
  return {{"tokenizer.json", JsonText()},
          {"tokenizer_config.json", config},
          {"vocab.json", VocabJson(ById(vocab, is_byte_level())) + "\n"},
          {"merges.txt", std::move(merges)}};
}

uint64_t PipelineTokenizer::Fingerprint() const {
  const bool general = class_ == TokenizerClass::kGeneral;
  const std::string text =
      general ? json_text_ : Concat(JsonText(/*spells_out=*/true), eos_id_.value_or(-1));
  return HashTokens(added_, HashBytes(Concat(text, row_ends_, split_special_ ? "split" : "")));
}

}  // namespace tessera::data
