// SPDX-License-Identifier: Apache-2.0
#include "data/sequence_pairs/sequence_pair_dataset.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/dataset/keyed_permutation.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "data/dataset/text_pieces.h"
#include "data/dataset/token_cache.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/sequence_pair.h"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr size_t kPairsAtOnce = 4096;

StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
  TextLinesOf reader(&pieces);
  std::vector<std::string> lines;
  for (std::string_view line;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    lines.emplace_back(line);
  }
  return lines;
}

using PairVisitor = std::function<Status(std::string source, std::string target)>;

Status ForEachSource(const SequencePairFiles& files, const PairVisitor& visit) {
  if (IsTable(files.source)) {
    return ForEachRecord(files.source, {files.source_column},
                         [&](std::span<const std::string> fields, const std::string&) {
                           return visit(fields[0], "");
                         });
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> sources, ReadLines(files.source));
  for (std::string& source : sources) TESSERA_RETURN_IF_ERROR(visit(std::move(source), ""));
  return OkStatus();
}

Status ForEachPair(const SequencePairFiles& files, const PairVisitor& visit) {
  if (files.sources_only) return ForEachSource(files, visit);
  if (files.target.empty()) {
    return ForEachRecord(files.source, {files.source_column, files.target_column},
                         [&](std::span<const std::string> fields, const std::string&) {
                           return visit(fields[0], fields[1]);
                         });
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> sources, ReadLines(files.source));
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> targets, ReadLines(files.target));
  if (sources.size() != targets.size()) {
    return InvalidArgument(files.source, " has ", sources.size(), " lines, but ", files.target,
                           " has ", targets.size(), ": line by line they are to be pairs");
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(visit(std::move(sources[i]), std::move(targets[i])));
  }
  return OkStatus();
}

// Encodes pairs in the order in which they come, many at once.
class PairEncoder {
 public:
  PairEncoder(const Tokenizer& tokenizer, const SequencePairOptions& options,
              IndexedDatasetWriter* writer)
      : tokenizer_(tokenizer), options_(options), writer_(writer) {}

  Status Add(std::string source, std::string target) {
    waiting_.emplace_back(std::move(source), std::move(target));
    return waiting_.size() < kPairsAtOnce ? OkStatus() : Flush();
  }

  Status Flush() {
    std::vector<std::vector<int32_t>> ids(2 * waiting_.size());
    ParallelFor(std::ssize(waiting_), /*grain=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto& [source, target] = waiting_[static_cast<size_t>(i)];
        ids[static_cast<size_t>(2 * i)] =
            Encode(options_.source_prefix + source, options_.max_source_length);
        ids[static_cast<size_t>(2 * i + 1)] = Encode(target, options_.max_target_length);
      }
    });
    waiting_.clear();
    for (const std::vector<int32_t>& row : ids) {
      TESSERA_RETURN_IF_ERROR(writer_->AddSequence(row));
      writer_->EndDocument();
    }
    return OkStatus();
  }

 private:
  std::vector<int32_t> Encode(const std::string& text, int64_t max_length) const {
    const std::string changed = options_.lower_case ? LowerCased(text) : text;
    if (tokenizer_.row_template(false) != nullptr) {
      auto row = EncodePair(tokenizer_, changed, std::nullopt, {.max_length = max_length});
      if (row.ok()) return std::move(row->ids);
    }
    std::vector<int32_t> ids = tokenizer_.Encode(changed);
    const size_t end = tokenizer_.eos_id() ? 1 : 0;
    ids.resize(std::min(ids.size(), static_cast<size_t>(max_length) - end));
    if (end > 0) ids.push_back(*tokenizer_.eos_id());
    return ids;
  }

  const Tokenizer& tokenizer_;
  const SequencePairOptions& options_;
  IndexedDatasetWriter* writer_;
  std::vector<std::pair<std::string, std::string>> waiting_;
};

Status CheckLengths(const Tokenizer& tokenizer, const SequencePairOptions& options) {
  for (const auto& [name, length] : {std::pair("max_source_length", options.max_source_length),
                                     std::pair("max_target_length", options.max_target_length)}) {
    if (length < 1) return InvalidArgument(name, " is ", length, ", not at least 1");
    if (tokenizer.row_template(false) == nullptr) continue;
    const auto row = BuildRow(tokenizer, {}, std::nullopt, {.max_length = length});
    if (!row.ok()) return InvalidArgument(name, ": ", Message(row.status()));
  }
  return OkStatus();
}

Tensor Filled(int64_t rows, int64_t columns, int64_t value) {
  Tensor tensor = Empty({rows, columns}, DType::kInt64);
  std::fill_n(tensor.data<int64_t>(), tensor.numel(), value);
  return tensor;
}

}  // namespace

StatusOr<std::shared_ptr<const SequencePairDataset>> SequencePairDataset::Open(
    const SequencePairFiles& files, const Tokenizer& tokenizer, const std::string& cache,
    const SequencePairOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckLengths(tokenizer, options));
  std::vector<std::string> paths = {files.source};
  if (!files.target.empty()) paths.push_back(files.target);
  TESSERA_ASSIGN_OR_RETURN(json made_from, DescribeFiles(paths));
  made_from.update({{"layout", "pairs 1"},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"eos", tokenizer.eos_id().value_or(-1)},
                    {"source_column", ReplaceInvalidUtf8(files.source_column)},
                    {"target_column", ReplaceInvalidUtf8(files.target_column)},
                    {"max_source_length", options.max_source_length},
                    {"max_target_length", options.max_target_length},
                    {"source_prefix", ReplaceInvalidUtf8(options.source_prefix)},
                    {"lower_case", options.lower_case}});
  if (files.sources_only) made_from["sources_only"] = true;
  const auto make = [&](IndexedDatasetWriter* writer) -> StatusOr<json> {
    PairEncoder encoder(tokenizer, options, writer);
    TESSERA_RETURN_IF_ERROR(ForEachPair(files, [&](std::string source, std::string target) {
      return encoder.Add(std::move(source), std::move(target));
    }));
    TESSERA_RETURN_IF_ERROR(encoder.Flush());
    if (writer->num_tokens() == 0) return InvalidArgument(files.source, ": no pairs of texts");
    return json();
  };
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(cache, made_from,
                     {.vocab_size = tokenizer.vocab_size(), .reuse = !options.overwrite_cache},
                     make));
  return std::shared_ptr<const SequencePairDataset>(
      new SequencePairDataset(cached.tokens, tokenizer.pad_id().value_or(0), cached.reused));
}

StatusOr<Batch> SequencePairDataset::MakeBatch(std::span<const Sample> samples) const {
  int64_t source_columns = samples.empty() ? 0 : 1;
  int64_t target_columns = source_columns;
  for (const Sample& sample : samples) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "MakeBatch", "sample ", sample.index,
                  " of ", size());
    source_columns = std::max(source_columns, source_length(sample.index));
    target_columns = std::max(target_columns, target_length(sample.index));
  }
  const int64_t rows = std::ssize(samples);
  const Tensor input_ids = Filled(rows, source_columns, pad_id_);
  const Tensor mask = Filled(rows, source_columns, 0);
  const Tensor labels = Filled(rows, target_columns, kIgnoreLabel);
  Batch batch;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t index = samples[static_cast<size_t>(row)].index;
    const auto source = static_cast<size_t>(source_length(index));
    const auto target = static_cast<size_t>(target_length(index));
    tokens_->Read(tokens_->document_begin(2 * index),
                  {input_ids.data<int64_t>() + row * source_columns, source});
    std::fill_n(mask.data<int64_t>() + row * source_columns, source, 1);
    tokens_->Read(tokens_->document_begin(2 * index + 1),
                  {labels.data<int64_t>() + row * target_columns, target});
    batch.targets += static_cast<int64_t>(target);
  }
  batch.rows = rows;
  batch.tokens = rows * (source_columns + target_columns);
  batch.tensors = {
      {keys::kInputIds, input_ids}, {keys::kAttentionMask, mask}, {keys::kLabels, labels}};
  return batch;
}

}  // namespace tessera::data
