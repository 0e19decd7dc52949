// SPDX-License-Identifier: Apache-2.0
#include "data/preference/preference_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/dataset/json_records.h"
#include "data/dataset/token_cache.h"
#include "data/dataset/token_dataset.h"
#include "data/preference/preference_record.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr int64_t kParts = 3;  // of a pair: the prompt, chosen, rejected

struct Record {
  nlohmann::ordered_json json;
  std::string where;
};

Status CheckLength(const EncodedPair& pair, const std::string& where, int64_t most) {
  const auto longest =
      std::ssize(pair.prompt) + std::max(std::ssize(pair.chosen), std::ssize(pair.rejected));
  if (most == 0 || longest <= most) return OkStatus();
  return InvalidArgument(where, ": the prompt and a completion are ", longest,
                         " tokens, more than the ", most, " of a row");
}

Status WritePairs(const std::string& path, const PreferenceEncoder& encoder, int64_t most,
                  IndexedDatasetWriter* writer) {
  std::vector<Record> records;
  TESSERA_RETURN_IF_ERROR(ForEachJsonRecord(
      path, [&](const nlohmann::ordered_json& record, const std::string& where) -> Status {
        records.push_back({record, where});
        return OkStatus();
      }));
  if (records.empty()) return InvalidArgument(path, ": has no pair");
  std::vector<StatusOr<EncodedPair>> pairs(records.size());
  ParallelFor(std::ssize(records), /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      pairs[i] = encoder.Encode(records[i].json, records[i].where);
    }
  });
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].ok()) return pairs[i].status();
    TESSERA_RETURN_IF_ERROR(CheckLength(*pairs[i], records[i].where, most));
    for (const auto* part : {&pairs[i]->prompt, &pairs[i]->chosen, &pairs[i]->rejected}) {
      TESSERA_RETURN_IF_ERROR(writer->AddSequence(*part));
      writer->EndDocument();
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<PreferenceDataset>> PreferenceDataset::Open(
    const std::string& path, const Tokenizer& tokenizer, const std::string& cache,
    const PreferenceOptions& options) {
  const PreferenceEncoder encoder(tokenizer);
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json made_from, DescribeFiles({path}));
  made_from.update({{"layout", "preferences 2"},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"chat_template", encoder.chat_fingerprint()},
                    {"max_length", options.max_length}});
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(cache, made_from,
                     {.vocab_size = tokenizer.vocab_size(), .reuse = !options.overwrite_cache},
                     [&](IndexedDatasetWriter* writer) -> StatusOr<nlohmann::json> {
                       TESSERA_RETURN_IF_ERROR(
                           WritePairs(path, encoder, options.max_length, writer));
                       return nlohmann::json();
                     }));
  return std::shared_ptr<PreferenceDataset>(
      new PreferenceDataset(cached.tokens, made_from.dump(), cache, cached.reused));
}

std::optional<int64_t> PreferenceDataset::length_of(int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "PreferenceDataset", "sample ", index, " of ",
                size());
  return length(index, 0) + std::max(length(index, 1), length(index, 2));
}

StatusOr<Batch> PreferenceDataset::MakeBatch(std::span<const Sample> samples) const {
  int64_t columns = 0;
  for (const Sample& sample : samples) columns = std::max(columns, *length_of(sample.index));
  Batch batch;
  batch.rows = 2 * std::ssize(samples);
  batch.tokens = batch.rows * columns;
  batch.targets = std::ssize(samples);
  const Tensor input_ids = Zeros({batch.rows, columns}, DType::kInt64);
  const Tensor targets =
      Full({batch.rows, columns}, static_cast<double>(kIgnoreLabel), DType::kInt64);
  std::vector<int64_t> lengths;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const int64_t pair = samples[static_cast<size_t>(r / 2)].index;
    const int64_t part = 1 + r % 2;
    const int64_t prompt = length(pair, 0);
    const int64_t completion = length(pair, part);
    int64_t* const ids = input_ids.data<int64_t>() + r * columns;
    tokens_->Read(tokens_->document_begin(kParts * pair), {ids, static_cast<size_t>(prompt)});
    tokens_->Read(tokens_->document_begin(kParts * pair + part),
                  {ids + prompt, static_cast<size_t>(completion)});
    std::copy(ids + prompt, ids + prompt + completion,
              targets.data<int64_t>() + r * columns + prompt - 1);
    lengths.push_back(prompt + completion);
  }
  batch.tensors = {{keys::kInputIds, input_ids},
                   {keys::kTargets, targets},
                   {keys::kTokenMask, TokenMask(lengths, columns)}};
  if (!has_reference()) return batch;
  const Tensor reference = Empty({batch.rows}, DType::kFloat64);
  for (int64_t r = 0; r < batch.rows; ++r) {
    const int64_t pair = samples[static_cast<size_t>(r / 2)].index;
    reference.data<double>()[r] = reference_[static_cast<size_t>(2 * pair + r % 2)];
  }
  batch.tensors.set(keys::kReferenceLogProbabilities, reference);
  return batch;
}

void PreferenceDataset::SetReference(std::vector<double> log_probabilities) {
  TESSERA_CHECK(std::ssize(log_probabilities) == 2 * size(), "SetReference",
                log_probabilities.size(), " numbers for ", size(), " pairs");
  reference_ = std::move(log_probabilities);
}

}  // namespace tessera::data
