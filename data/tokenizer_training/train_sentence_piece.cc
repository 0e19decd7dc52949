// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/tokenizer_training/trained_tokenizer.h"
#include "data/tokenizer_training/trainer_library.h"

namespace tessera::data {
namespace {

using nlohmann::json;
using TrainerOptions = std::unordered_map<std::string, std::string>;

constexpr int kBlankPieces = 80;

struct Family {
  const char* name;
  const char* model_file;
  const char* normalization;  // where none is asked for
};
constexpr Family kFamilies[] = {{"t5", "spiece.model", "nmt_nfkc"},
                                {"llama", "tokenizer.model", "identity"},
                                {"glm", "cog-pretrain.model", "identity"},
                                {"chatglm", "ice_text.model", "identity"}};

StatusOr<std::string> Normalization(const TokenizerTrainingOptions& options, const Family& family) {
  std::string name = options.normalization;
  if (name.empty()) {
    name = family.normalization;
    if (options.lower_case && name == "identity") name = "nfkc";
  }
  if (name != "nmt_nfkc" && name != "nfkc" && name != "identity") {
    return InvalidArgument("normalization '", name, "' is none of nmt_nfkc, nfkc, identity");
  }
  if (!options.lower_case) return name;
  if (name == "identity") {
    return InvalidArgument("normalization identity leaves no room for lower case");
  }
  return name + "_cf";
}

// Special tokens and pieces of the model itself.
void SetSpecialPieces(const Family& family, TrainerOptions* options) {
  const std::string name = family.name;
  const auto ids = [&](const char* pad, const char* eos, const char* unk, const char* bos) {
    (*options)["pad_id"] = pad;
    (*options)["eos_id"] = eos;
    (*options)["unk_id"] = unk;
    (*options)["bos_id"] = bos;
  };
  if (name == "t5") {
    ids("0", "1", "2", "-1");
  } else if (name == "llama") {
    ids("-1", "2", "0", "1");
    (*options)["byte_fallback"] = "true";
  } else if (name == "glm") {
    ids("-1", "-1", "0", "-1");
  } else {
    ids("3", "2", "0", "1");
    (*options)["byte_fallback"] = "true";
    (*options)["control_symbols"] = "[MASK],[gMASK],[sMASK],<unused_0>,<sop>,<eop>,<ENC>,<dBLOCK>";
    std::vector<std::string> white_space = {"<n>", "<|tab|>"};
    for (int blanks = 2; blanks <= kBlankPieces; ++blanks) {
      white_space.push_back(Concat("<|blank_", blanks, "|>"));
    }
    (*options)["user_defined_symbols"] = Joined(white_space, ",");
  }
}

// The files beside the model, for those who load the folder.
std::vector<std::pair<std::string, json>> FilesBeside(const Family& family, int64_t num_pieces) {
  const std::string name = family.name;
  if (name == "t5") {
    return {{"tokenizer_config.json",
             {{"tokenizer_class", "T5Tokenizer"},
              {"eos_token", "</s>"},
              {"unk_token", "<unk>"},
              {"pad_token", "<pad>"},
              {"extra_ids", 100},
              {"legacy", false}}}};
  }
  if (name == "llama") {
    return {{"tokenizer_config.json",
             {{"tokenizer_class", "LlamaTokenizer"},
              {"bos_token", "<s>"},
              {"eos_token", "</s>"},
              {"unk_token", "<unk>"},
              {"add_bos_token", true},
              {"add_eos_token", false},
              {"legacy", false}}}};
  }
  if (name == "chatglm") {
    return {{"tokenizer_config.json",
             {{"tokenizer_class", "ChatGLMTokenizer"},
              {"bos_token", "<sop>"},
              {"eos_token", "<eop>"},
              {"end_token", "</s>"},
              {"mask_token", "[MASK]"},
              {"gmask_token", "[gMASK]"},
              {"pad_token", "<pad>"},
              {"unk_token", "<unk>"},
              {"do_lower_case", false},
              {"remove_space", false},
              {"num_image_tokens", 0}}}};
  }
  const std::vector<std::string> behind = {"<|endoftext|>",  "[SEP]",   "[CLS]",
                                           "[MASK]",         "[UNK]",   "<|startofpiece|>",
                                           "<|endofpiece|>", "[sMASK]", "[gMASK]"};
  json added;
  for (size_t i = 0; i < behind.size(); ++i)
    added[behind[i]] = num_pieces + static_cast<int64_t>(i);
  return {{"tokenizer_config.json",
           {{"tokenizer_class", "GLMChineseTokenizer"},
            {"eos_token", "<|endoftext|>"},
            {"pad_token", "<|endoftext|>"},
            {"cls_token", "[CLS]"},
            {"sep_token", "[SEP]"},
            {"mask_token", "[MASK]"},
            {"unk_token", "[UNK]"},
            {"additional_special_tokens",
             {"<|startofpiece|>", "<|endofpiece|>", "[gMASK]", "[sMASK]"}}}},
          {"added_tokens.json", added}};
}

void TakeLines(std::string_view text, std::vector<std::string>* sentences) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool blank = line.find_first_not_of(" \t") == std::string_view::npos;
    // The library ends at a zero byte.
    const bool has_zero = line.find('\0') != std::string_view::npos;
    if (blank || has_zero || std::ssize(line) > kLongestSentence) continue;
    sentences->emplace_back(line);
  }
}

StatusOr<std::vector<std::string>> ReadSentences(std::vector<std::string> files,
                                                 const TokenizerTrainingOptions& options) {
  const std::string first = files[0];
  std::vector<std::string> sentences;
  TESSERA_RETURN_IF_ERROR(ForEachTrainingText(std::move(files), options,
                                              [&](std::string_view text, const std::string&) {
                                                TakeLines(text, &sentences);
                                                return OkStatus();
                                              }));
  if (sentences.empty()) return InvalidArgument(first, ": no lines of text to learn from");
  return sentences;
}

// Every n-th sentence, so that `most` are left.
void Thin(int64_t most, std::vector<std::string>* sentences) {
  const auto count = std::ssize(*sentences);
  if (most <= 0 || count <= most) return;
  for (int64_t i = 0; i < most; ++i) {
    (*sentences)[static_cast<size_t>(i)] =
        std::move((*sentences)[static_cast<size_t>(i * count / most)]);
  }
  sentences->resize(static_cast<size_t>(most));
}

StatusOr<TrainerOptions> OptionsOf(const TokenizerTrainingOptions& options, const Family& family) {
  const std::string type = options.type.empty() ? "unigram" : options.type;
  if (type != "unigram" && type != "bpe") {
    return InvalidArgument("tokenizer type '", type, "' is neither unigram nor bpe");
  }
  if (options.min_frequency != TokenizerTrainingOptions().min_frequency) {
    return InvalidArgument("min_frequency is not for ", options.family,
                           ": SentencePiece has no such limit");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string normalization, Normalization(options, family));
  TrainerOptions trainer = {{"model_type", type},
                            {"vocab_size", std::to_string(options.vocab_size)},
                            {"character_coverage", Concat(options.character_coverage)},
                            {"normalization_rule_name", normalization},
                            {"max_sentence_length", std::to_string(kLongestSentence)},
                            {"pad_piece", "<pad>"},
                            {"minloglevel", "3"},
                            // Sums are over parts of the text, one of each thread.
                            {"num_threads", "4"}};
  SetSpecialPieces(family, &trainer);
  return trainer;
}

}  // namespace

std::vector<std::string> SentencePieceFamilies() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

StatusOr<TrainedTokenizer> TrainSentencePiece(std::vector<std::string> files,
                                              const TokenizerTrainingOptions& options) {
  const auto* family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                    [&](const Family& f) { return options.family == f.name; });
  TESSERA_CHECK(family != std::end(kFamilies), "TrainSentencePiece", options.family);
  TESSERA_ASSIGN_OR_RETURN(const TrainerOptions trainer, OptionsOf(options, *family));
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> sentences,
                           ReadSentences(std::move(files), options));
  Thin(options.max_sentences, &sentences);

  std::string error;
  std::string model = RunSentencePieceTrainer(trainer, sentences, &error);
  if (model.empty()) return InvalidArgument("training the tokenizer: ", error);
  TrainedTokenizer made = {.files = {{family->model_file, std::move(model)}},
                           .num_pieces = options.vocab_size,
                           .num_texts = std::ssize(sentences)};
  for (const auto& [name, content] : FilesBeside(*family, options.vocab_size)) {
    made.files.emplace_back(name, content.dump(2) + "\n");
  }
  return made;
}

}  // namespace tessera::data
