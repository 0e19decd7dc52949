// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sequence_pair.h"

#include <algorithm>
#include <utility>

namespace tessera::data {
namespace {

void Cut(size_t size, bool begin, std::vector<int32_t>* ids) {
  if (ids->size() <= size) return;
  if (begin) ids->erase(ids->begin(), ids->end() - static_cast<std::ptrdiff_t>(size));
  ids->resize(size);
}

// Cuts the longer of the two until both fit into `room`; of an odd token in equal halves the second
// keeps it, unless the first was the longer.
void TruncateLongestFirst(size_t room, bool begin, std::vector<int32_t>* first,
                          std::vector<int32_t>* second) {
  if (first->size() + second->size() <= room) return;
  const bool first_longer = first->size() > second->size();
  size_t shorter = std::min(first->size(), second->size());
  size_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  Cut(first_longer ? longer : shorter, begin, first);
  Cut(first_longer ? shorter : longer, begin, second);
}

StatusOr<const RowTemplate*> TemplateOf(const Tokenizer& tokenizer, bool pair) {
  if (const RowTemplate* row = tokenizer.row_template(pair)) return row;
  if (pair && tokenizer.row_template(false) != nullptr) {
    return InvalidArgument("the tokenizer makes rows of one text, not of two");
  }
  return InvalidArgument("the tokenizer has no tokens that begin and separate sequences");
}

}  // namespace

StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                              std::optional<std::vector<int32_t>> second,
                              const PairOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const RowTemplate* const around,
                           TemplateOf(tokenizer, second.has_value()));
  if (options.max_length > 0) {
    const int64_t specials = std::ssize(around->items) - (second ? 2 : 1);
    if (options.max_length < specials) {
      return InvalidArgument("a length of ", options.max_length, " leaves no room for the ",
                             specials, " special tokens");
    }
    const auto room = static_cast<size_t>(options.max_length - specials);
    if (second) {
      TruncateLongestFirst(room, options.cut_begin, &first, &*second);
    } else {
      Cut(room, options.cut_begin, &first);
    }
  }
  for (std::vector<int32_t>* ids : {&first, second ? &*second : nullptr}) {
    if (ids == nullptr || ids->empty() || around->text_end < 0) continue;
    if (ids->back() == around->text_end) ids->pop_back();
  }
  EncodedRow row;
  for (const RowTemplate::Item& item : around->items) {
    if (item.id == RowTemplate::kFirst) {
      row.ids.insert(row.ids.end(), first.begin(), first.end());
    } else if (item.id == RowTemplate::kSecond) {
      row.ids.insert(row.ids.end(), second->begin(), second->end());
    } else {
      row.ids.push_back(item.id);
    }
    row.token_type_ids.resize(row.ids.size(), item.type_id);
  }
  return row;
}

StatusOr<EncodedRow> EncodePair(const Tokenizer& tokenizer, std::string_view first,
                                std::optional<std::string_view> second,
                                const PairOptions& options) {
  std::optional<std::vector<int32_t>> second_ids;
  if (second) second_ids = tokenizer.Encode(*second);
  return BuildRow(tokenizer, tokenizer.Encode(first), std::move(second_ids), options);
}

}  // namespace tessera::data
