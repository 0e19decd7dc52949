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

std::vector<std::string> Families() {
  std::vector<std::string> names = SentencePieceFamilies();
  for (const std::string& name : PairEncodingFamilies()) names.push_back(name);
  return names;
}

StatusOr<TrainedTokenizer> Train(std::vector<std::string> files,
                                 const TokenizerTrainingOptions& options) {
  const std::vector<std::string> pairs = PairEncodingFamilies();
  return std::find(pairs.begin(), pairs.end(), options.family) != pairs.end()
             ? TrainPairEncoding(std::move(files), options)
             : TrainSentencePiece(std::move(files), options);
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
          .Add("vocab_size", &O::vocab_size, "number of pieces", {.least = 8, .most = 1 << 20})
          .Add("type", &O::type,
               "unigram or bpe for SentencePiece, bpe for bytes, wordpiece for bert",
               {.type = "TYPE", .unset = "the family's first"})
          .Add("family", &O::family,
               "whose special tokens and files: of SentencePiece, of byte-level BPE, of WordPiece",
               {.type = "NAME", .choices = Families()})
          .Add("lower_case", &O::lower_case, "fold text to lower case")
          .Add("normalization", &O::normalization, "nmt_nfkc, nfkc or identity",
               {.type = "NAME", .unset = "nmt_nfkc for t5, else identity"})
          .Add("character_coverage", &O::character_coverage,
               "share of the text's characters that become pieces",
               {.above = 0, .most = 1, .type = "SHARE"})
          .Add("min_frequency", &O::min_frequency,
               "a pair of pieces that comes less often becomes none (bytes, bert)", {.least = 0})
          .Add("max_sentences", &O::max_sentences,
               "learn from so many lines, spread over the text; 0: all (SentencePiece)",
               {.least = 0})
          .Add("json_key", &O::json_keys,
               "member of JSON lines that holds text; may be given several times",
               {.type = "KEY"}));
  return *table;
}

StatusOr<TokenizerTrainingResult> TrainTokenizer(const std::vector<std::string>& inputs,
                                                 const std::string& folder,
                                                 const TokenizerTrainingOptions& options) {
  TESSERA_RETURN_IF_ERROR(TokenizerTrainingOptions::Table().Check(&options));
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
