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

absl::Status Unsuitable() {
  return InvalidArgument("the tokenizer has no tokens that begin and separate sequences");
}

// Texts and special tokens in order; an absent token is none.
class TemplateMaker {
 public:
  TemplateMaker& Text(int32_t which, int32_t type = 0) {
    row_.items.push_back({which, type});
    return *this;
  }
  TemplateMaker& Token(std::optional<int32_t> id, int32_t type = 0) {
    if (id) {
      row_.items.push_back({*id, type});
    } else {
      complete_ = false;
    }
    return *this;
  }
  absl::StatusOr<RowTemplate> Finish() const {
    if (!complete_) return Unsuitable();
    return row_;
  }

 private:
  RowTemplate row_;
  bool complete_ = true;
};

absl::StatusOr<RowTemplate> LlamaTemplate(const Tokenizer& tokenizer, bool pair) {
  TemplateMaker row;
  for (int32_t type = 0; type < (pair ? 2 : 1); ++type) {
    if (tokenizer.row_begins_with_bos()) row.Token(tokenizer.bos_id(), type);
    row.Text(type == 0 ? RowTemplate::kFirst : RowTemplate::kSecond, type);
    if (tokenizer.row_ends_with_eos()) row.Token(tokenizer.eos_id(), type);
  }
  return row.Finish();
}

absl::StatusOr<RowTemplate> TemplateOf(const Tokenizer& tokenizer, bool pair) {
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  const auto cls = tokenizer.cls_id();
  const auto sep = tokenizer.sep_id();
  const auto eos = tokenizer.eos_id();
  TemplateMaker row;
  switch (tokenizer.pair_style()) {
    case PairStyle::kNone:
      return Unsuitable();
    case PairStyle::kTemplate:
      return *tokenizer.row_template(pair);
    case PairStyle::kBert:
      row.Token(cls).Text(kFirst).Token(sep);
      if (pair) row.Text(kSecond, 1).Token(sep, 1);
      return row.Finish();
    case PairStyle::kRoberta:
      row.Token(cls).Text(kFirst).Token(sep);
      if (pair) row.Token(sep).Text(kSecond).Token(sep);
      return row.Finish();
    case PairStyle::kT5:
      row.Text(kFirst).Token(eos);
      if (pair) row.Text(kSecond).Token(eos);
      return row.Finish();
    case PairStyle::kLlama:
      return LlamaTemplate(tokenizer, pair);
    case PairStyle::kGlm:
      if (pair) return InvalidArgument("GLM's tokenizer makes rows of one text, not of two");
      return row.Token(cls).Text(kFirst).Token(eos).Finish();
    case PairStyle::kChatGlm:
      row.Text(kFirst).Token(tokenizer.gmask_id()).Token(tokenizer.bos_id());
      if (pair) row.Text(kSecond).Token(eos);
      return row.Finish();
  }
  return Unsuitable();
}

}  // namespace

absl::StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                                    std::optional<std::vector<int32_t>> second,
                                    const PairOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const RowTemplate around, TemplateOf(tokenizer, second.has_value()));
  if (options.max_length > 0) {
    const int64_t specials = std::ssize(around.items) - (second ? 2 : 1);
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
  if (tokenizer.pair_style() == PairStyle::kT5) {  // a text that brings its end gets no second one
    for (std::vector<int32_t>* ids : {&first, second ? &*second : nullptr}) {
      if (ids != nullptr && !ids->empty() && ids->back() == tokenizer.eos_id()) ids->pop_back();
    }
  }
  EncodedRow row;
  for (const RowTemplate::Item& item : around.items) {
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

absl::StatusOr<EncodedRow> EncodePair(const Tokenizer& tokenizer, std::string_view first,
                                      std::optional<std::string_view> second,
                                      const PairOptions& options) {
  std::optional<std::vector<int32_t>> second_ids;
  if (second) second_ids = tokenizer.Encode(*second);
  return BuildRow(tokenizer, tokenizer.Encode(first), std::move(second_ids), options);
}

}  // namespace tessera::data
