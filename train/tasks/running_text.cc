// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/running_text.h"

#include "base/file.h"
#include "data/dataset/blended_dataset.h"
#include "data/dataset/document_dataset.h"
#include "data/dataset/tokenize.h"

namespace tessera::train {
namespace {

using data::IndexedDataset;

StatusOr<std::shared_ptr<const IndexedDataset>> OpenTokens(const TaskInput& input,
                                                           DocumentBegin begin,
                                                           const std::string& path,
                                                           const std::string& name) {
  if (const auto prefix = data::IndexedDatasetPrefix(path)) return IndexedDataset::Open(*prefix);
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  data::TokenizeOptions options;
  options.prepend_begin = begin == DocumentBegin::kTokenizers;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, input.config.Part<RunningTextOptions>());
  options.input.json_key = keys.json_key;
  options.reuse = !input.config.overwrite_cache;
  const std::string prefix = JoinPath(input.cache, name);
  TESSERA_RETURN_IF_ERROR(
      data::TokenizeToIndexedDataset(*tokenizer, {path}, prefix, options).status());
  return IndexedDataset::Open(prefix, path);
}

}  // namespace

StatusOr<std::shared_ptr<const data::TokenDataset>> Windows(const TextPart& text, int64_t seq_len,
                                                            const TaskInput& input,
                                                            const WindowOptions& options) {
  if (text.streams.empty()) return nullptr;
  std::vector<std::shared_ptr<const data::TokenDataset>> windows;
  const data::PackedDatasetOptions cut = {.seq_len = seq_len,
                                          .vocab_size = input.shape.vocab_size(),
                                          .part = text.part,
                                          .validation_fraction = text.validation_fraction,
                                          .reset_at_documents = options.reset_at_documents};
  for (const auto& tokens : text.streams) {
    if (options.packing) {
      TESSERA_ASSIGN_OR_RETURN(auto packed, data::PackedDataset::Create(tokens, cut));
      windows.push_back(std::move(packed));
    } else {
      TESSERA_ASSIGN_OR_RETURN(auto documents, data::DocumentDataset::Create(tokens, cut));
      windows.push_back(std::move(documents));
    }
  }
  if (windows.size() == 1) return windows[0];
  TESSERA_ASSIGN_OR_RETURN(auto blend,
                           data::BlendedDataset::Create(std::move(windows), text.weights));
  return std::shared_ptr<const data::TokenDataset>(std::move(blend));
}

StatusOr<TextParts> OpenRunningText(const TaskInput& input, DocumentBegin begin) {
  const RunConfig& config = input.config;
  TextPart all;
  for (size_t i = 0; i < input.sources.size(); ++i) {
    const std::string name = input.evaluation ? "val" : "train";
    TESSERA_ASSIGN_OR_RETURN(auto tokens, OpenTokens(input, begin, input.sources[i].path,
                                                     i == 0 ? name : Concat(name, "-", i)));
    // Without weights the streams are mixed by their sizes.
    all.weights.push_back(
        input.sources[i].weight.value_or(static_cast<double>(tokens->num_tokens())));
    all.streams.push_back(std::move(tokens));
  }
  TextParts parts;
  if (input.evaluation) {
    parts.validation = all;
    return parts;
  }
  parts.train = all;
  if (!config.Validation().empty()) {
    TESSERA_ASSIGN_OR_RETURN(auto tokens, OpenTokens(input, begin, config.Validation(), "val"));
    parts.validation.streams = {std::move(tokens)};
    parts.validation.weights = {1};
  } else if (config.val_fraction > 0) {
    parts.validation = all;
    parts.train.part = data::DataPart::kTrain;
    parts.validation.part = data::DataPart::kValidation;
    parts.train.validation_fraction = config.val_fraction;
    parts.validation.validation_fraction = config.val_fraction;
  }
  return parts;
}

TokenizerText RunningTokenizerText(const RunConfig& config) {
  TokenizerText text;
  for (const DataSource& source : config.Sources()) text.paths.push_back(source.path);
  const auto options = config.Part<RunningTextOptions>();
  if (options.ok()) text.json_key = options->json_key;
  return text;
}

}  // namespace tessera::train
