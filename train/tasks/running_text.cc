#include "train/tasks/running_text.h"

#include "core/file.h"
#include "data/dataset/tokenize.h"

namespace tessera::train {
namespace {

using data::IndexedDataset;

absl::StatusOr<std::shared_ptr<const IndexedDataset>> OpenTokens(const TaskInput& input,
                                                                 const std::string& path,
                                                                 const char* name) {
  if (const auto prefix = data::IndexedDatasetPrefix(path)) return IndexedDataset::Open(*prefix);
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  data::TokenizeOptions options;
  options.input.json_key = input.config.json_key;
  options.reuse = !input.config.overwrite_cache;
  const std::string prefix = JoinPath(input.cache, name);
  TESSERA_RETURN_IF_ERROR(
      data::TokenizeToIndexedDataset(*tokenizer, {path}, prefix, options).status());
  return IndexedDataset::Open(prefix);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const data::TokenDataset>> Windows(const TextPart& text,
                                                                  int64_t seq_len,
                                                                  const TaskInput& input) {
  if (text.tokens == nullptr) return nullptr;
  TESSERA_ASSIGN_OR_RETURN(
      auto packed, data::PackedDataset::Create(
                       text.tokens, {.seq_len = seq_len,
                                     .vocab_size = input.shape.vocab_size(),
                                     .part = text.part,
                                     .validation_fraction = text.validation_fraction,
                                     .reset_at_documents = input.config.reset_at_documents}));
  return std::shared_ptr<const data::TokenDataset>(std::move(packed));
}

absl::StatusOr<TextParts> OpenRunningText(const TaskInput& input) {
  const RunConfig& config = input.config;
  TextParts parts;
  TESSERA_ASSIGN_OR_RETURN(const auto tokens,
                           OpenTokens(input, config.data, input.evaluation ? "val" : "train"));
  if (input.evaluation) {
    parts.validation.tokens = tokens;
    return parts;
  }
  parts.train.tokens = tokens;
  if (!config.val_data.empty()) {
    TESSERA_ASSIGN_OR_RETURN(parts.validation.tokens, OpenTokens(input, config.val_data, "val"));
  } else if (config.val_fraction > 0) {
    parts.train = {tokens, data::DataPart::kTrain, config.val_fraction};
    parts.validation = {tokens, data::DataPart::kValidation, config.val_fraction};
  }
  return parts;
}

}  // namespace tessera::train
