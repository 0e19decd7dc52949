#include "data/tokenizer/sequence_pair.h"

#include <algorithm>
#include <utility>

namespace tessera::data {
namespace {

// Cuts the longer of the two until both fit into `room`; of an odd token in equal halves the second
// keeps it, unless the first was the longer.
void TruncateLongestFirst(size_t room, std::vector<int32_t>* first, std::vector<int32_t>* second) {
  if (first->size() + second->size() <= room) return;
  const bool first_longer = first->size() > second->size();
  size_t shorter = std::min(first->size(), second->size());
  size_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  first->resize(std::min(first->size(), first_longer ? longer : shorter));
  second->resize(std::min(second->size(), first_longer ? shorter : longer));
}

}  // namespace

absl::StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                                    std::optional<std::vector<int32_t>> second,
                                    const PairOptions& options) {
  const PairStyle style = tokenizer.pair_style();
  if (style == PairStyle::kNone || !tokenizer.cls_id() || !tokenizer.sep_id()) {
    return InvalidArgument("the tokenizer has no tokens that begin and separate sequences");
  }
  const bool roberta = style == PairStyle::kRoberta;
  const int64_t specials = !second ? 2 : (roberta ? 4 : 3);
  if (options.max_length > 0) {
    if (options.max_length < specials) {
      return InvalidArgument("a length of ", options.max_length, " leaves no room for the ",
                             specials, " special tokens");
    }
    const auto room = static_cast<size_t>(options.max_length - specials);
    if (second) {
      TruncateLongestFirst(room, &first, &*second);
    } else {
      first.resize(std::min(first.size(), room));
    }
  }
  EncodedRow row;
  row.ids.push_back(*tokenizer.cls_id());
  row.ids.insert(row.ids.end(), first.begin(), first.end());
  row.ids.push_back(*tokenizer.sep_id());
  const size_t first_part = row.ids.size();
  if (second) {
    if (roberta) row.ids.push_back(*tokenizer.sep_id());
    row.ids.insert(row.ids.end(), second->begin(), second->end());
    row.ids.push_back(*tokenizer.sep_id());
  }
  row.token_type_ids.assign(row.ids.size(), 0);
  if (!roberta) std::fill(row.token_type_ids.begin() + first_part, row.token_type_ids.end(), 1);
  return row;
}

absl::StatusOr<EncodedRow> EncodePair(const Tokenizer& tokenizer, std::string_view first,
                                      std::optional<std::string_view> second,
                                      const PairOptions& options) {
  std::optional<std::vector<int32_t>> second_ids;
  if (second) second_ids = tokenizer.Encode(*second);
  return BuildRow(tokenizer, tokenizer.Encode(first), std::move(second_ids), options);
}

}  // namespace tessera::data
