// SPDX-License-Identifier: Apache-2.0
#include "data/classification/text_classification_dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/dataset/record_input.h"
#include "data/dataset/token_cache.h"
#include "data/tokenizer/sequence_pair.h"

namespace tessera::data {
namespace {

constexpr size_t kRowsEncodedTogether = 4096;

// Encodes rows in the order in which they come.
class RowEncoder {
 public:
  RowEncoder(const Tokenizer& tokenizer, const TextClassificationOptions& options,
             IndexedDatasetWriter* writer)
      : tokenizer_(tokenizer), options_(options), writer_(writer) {}

  Status Add(std::string text, std::string pair, std::string where) {
    waiting_.push_back({std::move(text), std::move(pair), std::move(where)});
    return waiting_.size() < kRowsEncodedTogether ? OkStatus() : Flush();
  }

  Status Flush() {
    const bool pairs = !options_.text_pair_column.empty();
    std::vector<StatusOr<EncodedRow>> rows(waiting_.size(), EncodedRow());
    ParallelFor(std::ssize(waiting_), /*grain=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Row& row = waiting_[static_cast<size_t>(i)];
        rows[static_cast<size_t>(i)] = EncodePair(
            tokenizer_, row.text, pairs ? std::optional<std::string_view>(row.pair) : std::nullopt,
            {.max_length = options_.max_length});
      }
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].ok()) return InvalidArgument(waiting_[i].where, ": ", Message(rows[i].status()));
      TESSERA_RETURN_IF_ERROR(writer_->AddSequence(rows[i]->ids));
      if (pairs) TESSERA_RETURN_IF_ERROR(writer_->AddSequence(rows[i]->token_type_ids));
      writer_->EndDocument();
    }
    waiting_.clear();
    return OkStatus();
  }

 private:
  struct Row {
    std::string text;
    std::string pair;
    std::string where;
  };
  const Tokenizer& tokenizer_;
  const TextClassificationOptions& options_;
  IndexedDatasetWriter* writer_;
  std::vector<Row> waiting_;
};

StatusOr<std::string> FirstTextColumn(const std::string& path,
                                      const std::vector<std::string>& labels) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> columns, ColumnsOf(path));
  for (const std::string& column : columns) {
    const bool is_label = std::find(labels.begin(), labels.end(), column) != labels.end();
    if (!is_label && !IsIndexColumn(column)) return column;
  }
  return InvalidArgument(path, ": no column beside the labels");
}

}  // namespace

StatusOr<std::shared_ptr<const TextClassificationDataset>> TextClassificationDataset::Open(
    const std::string& path, const Tokenizer& tokenizer,
    const TextClassificationOptions& requested) {
  TextClassificationOptions options = requested;
  if (!tokenizer.pad_id()) return InvalidArgument("the tokenizer has no padding token");
  if (options.text_column.empty()) {
    TESSERA_ASSIGN_OR_RETURN(options.text_column, FirstTextColumn(path, options.label_columns));
  }
  const bool pairs = !options.text_pair_column.empty();
  std::vector<std::string> columns = options.label_columns;
  columns.push_back(options.text_column);
  if (pairs) columns.push_back(options.text_pair_column);

  TESSERA_ASSIGN_OR_RETURN(nlohmann::json made_from, DescribeFiles({path}));
  made_from.update({{"layout", 2},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"columns", columns},
                    {"labels", options.label_columns.size()},
                    {"max_length", options.max_length}});
  const auto encode = [&](IndexedDatasetWriter* writer) -> StatusOr<nlohmann::json> {
    RowEncoder rows(tokenizer, options, writer);
    const size_t num_labels = options.label_columns.size();
    LabelReader labels(static_cast<int64_t>(num_labels));
    TESSERA_RETURN_IF_ERROR(ForEachRecord(
        path, columns,
        [&](std::span<const std::string> fields, const std::string& where) -> Status {
          TESSERA_RETURN_IF_ERROR(labels.Add(fields.first(num_labels), where));
          return rows.Add(fields[num_labels], pairs ? fields[num_labels + 1] : "", where);
        }));
    TESSERA_RETURN_IF_ERROR(rows.Flush());
    if (writer->num_tokens() == 0) return InvalidArgument(path, ": no records there");
    return std::move(labels).Finish().ToJson();
  };
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(options.cache, made_from,
                     {.vocab_size = tokenizer.vocab_size(), .reuse = options.reuse}, encode));
  std::shared_ptr<TextClassificationDataset> data(new TextClassificationDataset);
  data->rows_ = cached.tokens;
  TESSERA_ASSIGN_OR_RETURN(data->labels_, LabelColumn::FromJson(cached.facts));
  if (std::ssize(data->labels_.values) != data->rows_->num_documents() * data->labels_.num_fields) {
    return DataLoss(options.cache, ".json: the labels are not those of the tokens");
  }
  if (options.numbers && data->labels_.kind == LabelKind::kNames) {
    TESSERA_RETURN_IF_ERROR(UseNumbers(&data->labels_));
  }
  if (!options.label_names.empty() && data->labels_.kind == LabelKind::kNames) {
    TESSERA_RETURN_IF_ERROR(UseNames(options.label_names, &data->labels_));
  }
  data->pairs_ = pairs;
  data->token_types_ = options.token_types;
  data->pad_id_ = *tokenizer.pad_id();
  return std::shared_ptr<const TextClassificationDataset>(std::move(data));
}

StatusOr<Batch> TextClassificationDataset::MakeBatch(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  const auto length_of = [&](int64_t row) {
    const int64_t tokens = rows_->document_begin(row + 1) - rows_->document_begin(row);
    return pairs_ ? tokens / 2 : tokens;
  };
  int64_t longest = 0;
  for (const Sample& sample : samples) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "TextClassificationDataset",
                  "there is no sample ", sample.index);
    longest = std::max(longest, length_of(sample.index));
  }
  const Tensor ids = Full({rows, longest}, static_cast<double>(pad_id_), DType::kInt64);
  const Tensor mask = Zeros({rows, longest}, DType::kInt64);
  const Tensor types = Zeros({rows, longest}, DType::kInt64);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = samples[static_cast<size_t>(r)].index;
    const auto length = static_cast<size_t>(length_of(row));
    const int64_t begin = rows_->document_begin(row);
    rows_->Read(begin, {ids.data<int64_t>() + r * longest, length});
    std::fill_n(mask.data<int64_t>() + r * longest, length, 1);
    if (pairs_) {
      rows_->Read(begin + static_cast<int64_t>(length),
                  {types.data<int64_t>() + r * longest, length});
    }
  }
  Batch batch;
  batch.rows = rows;
  batch.tokens = rows * longest;
  batch.targets = rows;
  batch.tensors = {{keys::kInputIds, ids}, {keys::kAttentionMask, mask}};
  if (token_types_) batch.tensors.set(keys::kTokenTypeIds, types);
  if (labels_.kind != LabelKind::kNone) batch.tensors.set(keys::kLabels, LabelsOf(samples));
  return batch;
}

Tensor TextClassificationDataset::LabelsOf(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  if (labels_.kind == LabelKind::kNames) {
    const Tensor labels = Empty({rows}, DType::kInt64);
    for (int64_t r = 0; r < rows; ++r) {
      labels.data<int64_t>()[r] = static_cast<int64_t>(
          labels_.values[static_cast<size_t>(samples[static_cast<size_t>(r)].index)]);
    }
    return labels;
  }
  const int64_t fields = labels_.num_fields;
  const Tensor labels = Empty(
      labels_.kind == LabelKind::kNumber ? Shape{rows} : Shape{rows, fields}, DType::kFloat32);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t f = 0; f < fields; ++f) {
      const int64_t at = samples[static_cast<size_t>(r)].index * fields + f;
      labels.data<float>()[r * fields + f] =
          static_cast<float>(labels_.values[static_cast<size_t>(at)]);
    }
  }
  return labels;
}

}  // namespace tessera::data
