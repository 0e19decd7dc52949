// SPDX-License-Identifier: Apache-2.0
#include "data/sequence_pairs/instruction_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/dataset/json_records.h"
#include "data/dataset/token_cache.h"
#include "data/tokenizer/sequence_pair.h"

namespace tessera::data {
namespace {

using nlohmann::json;

using Json = nlohmann::ordered_json;

struct Exchange {
  std::string prompt;
  std::string response;
};

// A text member; empty where it is absent or null.
Status ReadText(const Json& record, const std::string& column, const std::string& where,
                std::string* text) {
  text->clear();
  const auto at = record.find(column);
  if (at == record.end() || at->is_null()) return OkStatus();
  if (!at->is_string()) return InvalidArgument(where, ": ", column, " is not a text");
  *text = at->get<std::string>();
  return OkStatus();
}

// The conversation so far with the prompt behind it.
StatusOr<std::string> WithHistory(const Json& record, const std::string& where,
                                  const std::string& prompt, const InstructionOptions& options) {
  const std::string& column = options.history_column;
  const auto at = record.find(column);
  const bool none = at == record.end() || at->is_null();
  if (!none && !at->is_array()) return InvalidArgument(where, ": ", column, " is not an array");
  const size_t rounds = none ? 0 : at->size();
  std::vector<std::pair<std::string, std::string>> history;
  for (size_t i = 0; i < rounds; ++i) {
    const Json& turn = (*at)[i];
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
      return InvalidArgument(where, ": ", column, "[", i, "] is not a question and its answer");
    }
    history.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
  }
  return options.join_history(prompt, history);
}

// nullopt where the prompt or the response is empty; of prompts alone each must be there.
StatusOr<std::optional<Exchange>> ReadExchange(const Json& record, const std::string& where,
                                               const InstructionOptions& options) {
  Exchange exchange;
  TESSERA_RETURN_IF_ERROR(ReadText(record, options.prompt_column, where, &exchange.prompt));
  if (options.every_record && exchange.prompt.empty()) {
    return InvalidArgument(where, ": ", options.prompt_column, " is not there, or empty");
  }
  TESSERA_RETURN_IF_ERROR(ReadText(record, options.response_column, where, &exchange.response));
  const bool answered = options.every_record || !exchange.response.empty();
  if (exchange.prompt.empty() || !answered) return std::optional<Exchange>();
  if (!options.input_column.empty()) {
    std::string input;
    TESSERA_RETURN_IF_ERROR(ReadText(record, options.input_column, where, &input));
    if (!input.empty()) exchange.prompt += "\n" + input;
  }
  if (!options.history_column.empty()) {
    TESSERA_ASSIGN_OR_RETURN(exchange.prompt, WithHistory(record, where, exchange.prompt, options));
  }
  exchange.prompt = options.source_prefix + exchange.prompt;
  return std::optional(std::move(exchange));
}

// What the two texts of a row may have of its lengths.
struct Room {
  int64_t prompt = 0;
  int64_t response = 0;
};

// The lengths without the special tokens of the row.
StatusOr<Room> RoomFor(const Tokenizer& tokenizer, const InstructionOptions& options) {
  const auto unsuitable = [] {
    return InvalidArgument(
        "instructions need a tokenizer whose rows have an answer behind the prompt, with the token "
        "that begins it: [gMASK], <sop> and <eop> for one");
  };
  const RowTemplate* const row = tokenizer.row_template(/*pair=*/true);
  if (row == nullptr || !options.answer_start) return unsuitable();
  const auto begins =
      std::find_if(row->items.begin(), row->items.end(),
                   [&](const RowTemplate::Item& item) { return item.id == *options.answer_start; });
  const auto count = [&](auto from, auto to, int32_t id) {
    return std::count_if(from, to, [id](const RowTemplate::Item& item) { return item.id == id; });
  };
  if (count(row->items.begin(), begins, RowTemplate::kFirst) != 1 ||
      count(begins, row->items.end(), RowTemplate::kSecond) != 1) {
    return unsuitable();
  }
  const int64_t before = begins - row->items.begin() - 1;
  const int64_t behind = row->items.end() - begins - 1;
  if (options.max_source_length < before) {
    return InvalidArgument("max_source_length is ", options.max_source_length, ", not at least ",
                           before);
  }
  if (options.max_target_length < behind) {
    return InvalidArgument("max_target_length is ", options.max_target_length, ", not at least ",
                           behind);
  }
  return Room{options.max_source_length - before, options.max_target_length - behind};
}

StatusOr<std::vector<int32_t>> EncodeExchange(const Tokenizer& tokenizer, const Exchange& exchange,
                                              const Room& room) {
  std::vector<int32_t> prompt = tokenizer.Encode(exchange.prompt);
  std::vector<int32_t> response = tokenizer.Encode(exchange.response);
  prompt.resize(std::min(prompt.size(), static_cast<size_t>(room.prompt)));
  response.resize(std::min(response.size(), static_cast<size_t>(room.response)));
  TESSERA_ASSIGN_OR_RETURN(EncodedRow row,
                           BuildRow(tokenizer, std::move(prompt), std::move(response)));
  return std::move(row.ids);
}

Status WriteExchanges(const std::string& path, const Tokenizer& tokenizer,
                      const InstructionOptions& options, const Room& room,
                      IndexedDatasetWriter* writer) {
  std::vector<Exchange> exchanges;
  bool has_prompt = false;
  bool has_response = false;
  TESSERA_RETURN_IF_ERROR(
      ForEachJsonRecord(path, [&](const Json& record, const std::string& where) -> Status {
        has_prompt |= record.contains(options.prompt_column);
        has_response |= record.contains(options.response_column);
        TESSERA_ASSIGN_OR_RETURN(auto exchange, ReadExchange(record, where, options));
        if (exchange) exchanges.push_back(*std::move(exchange));
        return OkStatus();
      }));
  if (!has_prompt || (!has_response && !options.every_record)) {
    return InvalidArgument(path, ": no record has a member ",
                           has_prompt ? options.response_column : options.prompt_column);
  }
  if (exchanges.empty()) return InvalidArgument(path, ": no record with a prompt and a response");
  std::vector<StatusOr<std::vector<int32_t>>> rows(exchanges.size());
  ParallelFor(std::ssize(exchanges), /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      rows[static_cast<size_t>(i)] =
          EncodeExchange(tokenizer, exchanges[static_cast<size_t>(i)], room);
    }
  });
  for (const auto& row : rows) {
    if (!row.ok()) return row.status();
    TESSERA_RETURN_IF_ERROR(writer->AddSequence(*row));
    writer->EndDocument();
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const InstructionDataset>> InstructionDataset::Open(
    const std::string& path, const Tokenizer& tokenizer, const std::string& cache,
    const InstructionOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Room room, RoomFor(tokenizer, options));
  TESSERA_CHECK(options.history_column.empty() || options.join_history != nullptr,
                "InstructionDataset", "a history column needs join_history");
  TESSERA_ASSIGN_OR_RETURN(json made_from, DescribeFiles({path}));
  made_from.update({{"layout", "instructions 1"},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"prompt_column", ReplaceInvalidUtf8(options.prompt_column)},
                    {"response_column", ReplaceInvalidUtf8(options.response_column)},
                    {"input_column", ReplaceInvalidUtf8(options.input_column)},
                    {"history_column", ReplaceInvalidUtf8(options.history_column)},
                    {"source_prefix", ReplaceInvalidUtf8(options.source_prefix)},
                    {"max_source_length", options.max_source_length},
                    {"max_target_length", options.max_target_length}});
  if (options.every_record) made_from["every_record"] = true;
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(cache, made_from,
                     {.vocab_size = tokenizer.vocab_size(), .reuse = !options.overwrite_cache},
                     [&](IndexedDatasetWriter* writer) -> StatusOr<json> {
                       TESSERA_RETURN_IF_ERROR(
                           WriteExchanges(path, tokenizer, options, room, writer));
                       return json();
                     }));
  return std::shared_ptr<const InstructionDataset>(new InstructionDataset(
      cached.tokens, tokenizer.pad_id().value_or(0), *options.answer_start, cached.reused));
}

StatusOr<Batch> InstructionDataset::MakeBatch(std::span<const Sample> samples) const {
  int64_t columns = 0;
  for (const Sample& sample : samples) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "MakeBatch", "sample ", sample.index,
                  " of ", size());
    columns = std::max(columns, length(sample.index));
  }
  Batch batch;
  batch.rows = std::ssize(samples);
  batch.tokens = batch.rows * columns;
  const Tensor input_ids = Empty({batch.rows, columns}, DType::kInt64);
  const Tensor labels = Empty({batch.rows, columns}, DType::kInt64);
  for (int64_t r = 0; r < batch.rows; ++r) {
    const int64_t index = samples[static_cast<size_t>(r)].index;
    const int64_t filled = length(index);
    int64_t* const ids = input_ids.data<int64_t>() + r * columns;
    int64_t* const row_labels = labels.data<int64_t>() + r * columns;
    tokens_->Read(tokens_->document_begin(index), {ids, static_cast<size_t>(filled)});
    std::fill(ids + filled, ids + columns, pad_id_);
    const int64_t context = std::find(ids, ids + filled, answer_start_) - ids;
    for (int64_t i = 0; i < columns; ++i) {
      const bool target = i >= context && i < filled && ids[i] != pad_id_;
      row_labels[i] = target ? ids[i] : kIgnoreLabel;
      batch.targets += target ? 1 : 0;
    }
  }
  batch.tensors = {{keys::kInputIds, input_ids}, {keys::kLabels, labels}};
  return batch;
}

}  // namespace tessera::data
