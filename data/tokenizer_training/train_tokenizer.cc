// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/train_tokenizer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/options.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "data/tokenizer_training/trained_tokenizer.h"

namespace tessera::data {
namespace {

StatusOr<TrainedTokenizer> Train(std::vector<std::string> files,
                                 const TokenizerTrainingOptions& options) {
  std::vector<std::string> families = SentencePieceFamilies();
  const auto is_in = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), options.family) != names.end();
  };
  if (is_in(families)) return TrainSentencePiece(std::move(files), options);
  const std::vector<std::string> pairs = PairEncodingFamilies();
  if (is_in(pairs)) return TrainPairEncoding(std::move(files), options);
  families.insert(families.end(), pairs.begin(), pairs.end());
  return InvalidArgument("tokenizer family '", options.family, "' is none of ",
                         Joined(families, ", "));
}

// Those of a tokenizer that stood here before would be read in this one's place.
Status RemoveOthers(const std::string& folder) {
  std::vector<std::string> names = {"tokenizer.json",    "vocab.json",
                                    "merges.txt",        "vocab.txt",
                                    "added_tokens.json", "special_tokens_map.json"};
  for (const SentencePieceFile& file : kSentencePieceFiles) names.emplace_back(file.name);
  for (const std::string& name : names) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(folder, name)));
  }
  return OkStatus();
}

}  // namespace

std::string Joined(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? between : "") + parts[i];
  return out;
}

Status ForEachTrainingText(std::vector<std::string> files, const TokenizerTrainingOptions& options,
                           const DocumentVisitor& visit) {
  for (size_t i = 0; i < options.json_keys.size(); ++i) {
    const TextInputOptions input = {.format = options.format, .json_key = options.json_keys[i]};
    TESSERA_RETURN_IF_ERROR(ForEachDocument(files, input, visit));
    if (i == 0) {  // plain text has no members
      std::erase_if(files, [&](const auto& f) { return !HasRecords(f, options.format); });
    }
  }
  return OkStatus();
}

const OptionTable& TokenizerTrainingOptions::Table() {
  using O = TokenizerTrainingOptions;
  static const auto* table = new OptionTable(
      OptionTable::Of<O>("Options")
          .Add("vocab_size", &O::vocab_size, "number of pieces")
          .Add("type", &O::type,
               "unigram or bpe for SentencePiece, bpe for bytes, wordpiece for bert",
               {.type = "TYPE", .unset = "the family's first"})
          .Add("family", &O::family,
               "whose special tokens and files: t5, llama, glm or chatglm (SentencePiece); gpt2, "
               "llama3 or qwen2 (bytes); bert",
               {.type = "NAME"})
          .Add("lower_case", &O::lower_case, "fold text to lower case")
          .Add("normalization", &O::normalization, "nmt_nfkc, nfkc or identity",
               {.type = "NAME", .unset = "nmt_nfkc for t5, else identity"})
          .Add("character_coverage", &O::character_coverage,
               "share of the text's characters that become pieces", {.type = "SHARE"})
          .Add("min_frequency", &O::min_frequency,
               "a pair of pieces that comes less often becomes none (bytes, bert)")
          .Add("max_sentences", &O::max_sentences,
               "learn from so many lines, spread over the text; 0: all")
          .Add("json_key", &O::json_keys,
               "member of JSON lines that holds text; may be given several times",
               {.type = "KEY"}));
  return *table;
}

StatusOr<TokenizerTrainingResult> TrainTokenizer(const std::vector<std::string>& inputs,
                                                 const std::string& folder,
                                                 const TokenizerTrainingOptions& options) {
  if (options.vocab_size < 8 || options.vocab_size > (1 << 20)) {
    return InvalidArgument("vocab_size ", options.vocab_size, " is not in [8, ", 1 << 20, "]");
  }
  if (!(options.character_coverage > 0 && options.character_coverage <= 1)) {
    return InvalidArgument("character_coverage ", options.character_coverage, " is not in (0, 1]");
  }
  if (options.min_frequency < 0) {
    return InvalidArgument("min_frequency ", options.min_frequency, " is less than 0");
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> files, ListInputFiles(inputs));
  TESSERA_ASSIGN_OR_RETURN(const TrainedTokenizer made, Train(std::move(files), options));

  TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
  TESSERA_RETURN_IF_ERROR(RemoveOthers(folder));
  for (const auto& [name, bytes] : made.files) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, name), bytes));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(folder));
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));  // with a tokenizer.json for transformers
  return TokenizerTrainingResult{.num_pieces = made.num_pieces,
                                 .num_ids = tokenizer->vocab_size(),
                                 .num_texts = made.num_texts,
                                 .of_lines = made.of_lines,
                                 .model_file = made.files[0].first};
}

}  // namespace tessera::data
