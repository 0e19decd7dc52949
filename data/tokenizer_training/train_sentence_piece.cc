// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/train_sentence_piece.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/options.h"
#include "data/tokenizer/tokenizer.h"
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

std::string Joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
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
    (*options)["user_defined_symbols"] = Joined(white_space);
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

StatusOr<std::vector<std::string>> ReadSentences(const std::vector<std::string>& inputs,
                                                 const TokenizerTrainingOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> files, ListInputFiles(inputs));
  std::vector<std::string> sentences;
  for (size_t i = 0; i < options.json_keys.size(); ++i) {
    const TextInputOptions input = {.format = options.format, .json_key = options.json_keys[i]};
    TESSERA_RETURN_IF_ERROR(
        ForEachDocument(files, input, [&](std::string_view text, const std::string&) {
          TakeLines(text, &sentences);
          return OkStatus();
        }));
    if (i == 0) {  // plain text has no members
      std::erase_if(files, [&](const auto& f) { return !HasRecords(f, options.format); });
    }
  }
  if (sentences.empty()) return InvalidArgument(inputs[0], ": no lines of text to learn from");
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

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

StatusOr<TrainerOptions> OptionsOf(const TokenizerTrainingOptions& options, const Family& family) {
  TESSERA_ASSIGN_OR_RETURN(const std::string normalization, Normalization(options, family));
  TrainerOptions trainer = {{"model_type", options.type},
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

const OptionTable& TokenizerTrainingOptions::Table() {
  using O = TokenizerTrainingOptions;
  static const auto* table = new OptionTable(
      OptionTable::Of<O>("Options")
          .Add("vocab_size", &O::vocab_size, "number of pieces", {.least = 8, .most = 1 << 20})
          .Add("type", &O::type, "how pieces are learnt",
               {.type = "TYPE", .choices = {"unigram", "bpe"}})
          .Add("family", &O::family, "whose special tokens and files",
               {.type = "NAME", .choices = FamilyNames()})
          .Add("lower_case", &O::lower_case, "fold text to lower case")
          .Add("normalization", &O::normalization, "nmt_nfkc, nfkc or identity",
               {.type = "NAME", .unset = "nmt_nfkc for t5, else identity"})
          .Add("character_coverage", &O::character_coverage,
               "share of the text's characters that become pieces",
               {.above = 0, .most = 1, .type = "SHARE"})
          .Add("max_sentences", &O::max_sentences,
               "learn from so many lines, spread over the text; 0: all", {.least = 0})
          .Add("json_key", &O::json_keys,
               "member of JSON lines that holds text; may be given several times",
               {.type = "KEY"}));
  return *table;
}

StatusOr<TokenizerTrainingResult> TrainSentencePiece(const std::vector<std::string>& inputs,
                                                     const std::string& folder,
                                                     const TokenizerTrainingOptions& options) {
  TESSERA_RETURN_IF_ERROR(TokenizerTrainingOptions::Table().Check(&options));
  const auto* family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                    [&](const Family& f) { return options.family == f.name; });
  TESSERA_ASSIGN_OR_RETURN(const TrainerOptions trainer, OptionsOf(options, *family));
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> sentences, ReadSentences(inputs, options));
  Thin(options.max_sentences, &sentences);

  std::string error;
  const std::string model = RunSentencePieceTrainer(trainer, sentences, &error);
  if (model.empty()) return InvalidArgument("training the tokenizer: ", error);

  TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
  // That of a model that stood here before would be read in this one's place.
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(folder, "tokenizer.json")));
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, family->model_file), model));
  for (const auto& [name, content] : FilesBeside(*family, options.vocab_size)) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, name), content.dump(2) + "\n"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(folder));
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));  // with a tokenizer.json for transformers
  return TokenizerTrainingResult{.num_pieces = options.vocab_size,
                                 .num_ids = tokenizer->vocab_size(),
                                 .num_sentences = std::ssize(sentences),
                                 .model_file = family->model_file};
}

}  // namespace tessera::data
