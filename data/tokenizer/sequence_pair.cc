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

struct Template {
  std::vector<int32_t> before;
  std::vector<int32_t> between;  // behind the first text
  std::vector<int32_t> after;    // behind the second, or the only one
  int64_t of_second = 0;         // tokens of `between` that belong to the second text
  bool types = false;            // the second text is of type 1
};

absl::Status Unsuitable() {
  return InvalidArgument("the tokenizer has no tokens that begin and separate sequences");
}

absl::StatusOr<Template> TemplateOf(const Tokenizer& tokenizer, bool pair) {
  Template around;
  const auto cls = tokenizer.cls_id();
  const auto sep = tokenizer.sep_id();
  const auto bos = tokenizer.bos_id();
  const auto eos = tokenizer.eos_id();
  switch (tokenizer.pair_style()) {
    case PairStyle::kNone:
      return Unsuitable();
    case PairStyle::kBert:
      if (!cls || !sep) return Unsuitable();
      around = {.before = {*cls}, .between = {}, .after = {*sep}, .types = true};
      if (pair) around.between = {*sep};
      return around;
    case PairStyle::kRoberta:
      if (!cls || !sep) return Unsuitable();
      around = {.before = {*cls}, .between = {}, .after = {*sep}};
      if (pair) around.between = {*sep, *sep};
      return around;
    case PairStyle::kT5:
      if (!eos) return Unsuitable();
      around.after = {*eos};
      if (pair) around.between = {*eos};
      return around;
    case PairStyle::kLlama: {
      const std::vector<int32_t> begin =
          tokenizer.row_begins_with_bos() && bos ? std::vector{*bos} : std::vector<int32_t>();
      const std::vector<int32_t> end =
          tokenizer.row_ends_with_eos() && eos ? std::vector{*eos} : std::vector<int32_t>();
      around = {.before = begin, .between = {}, .after = end, .types = true};
      if (pair) {
        around.between = end;
        around.between.insert(around.between.end(), begin.begin(), begin.end());
        around.of_second = std::ssize(begin);
      }
      return around;
    }
    case PairStyle::kGlm:
      if (!cls || !eos) return Unsuitable();
      if (pair) return InvalidArgument("GLM's tokenizer makes rows of one text, not of two");
      around = {.before = {*cls}, .between = {}, .after = {*eos}};
      return around;
    case PairStyle::kChatGlm:
      if (!tokenizer.gmask_id() || !bos || !eos) return Unsuitable();
      around.between = {*tokenizer.gmask_id(), *bos};
      if (pair) around.after = {*eos};
      return around;
  }
  return Unsuitable();
}

}  // namespace

absl::StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                                    std::optional<std::vector<int32_t>> second,
                                    const PairOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Template around, TemplateOf(tokenizer, second.has_value()));
  const auto specials = std::ssize(around.before) + std::ssize(around.between) +
                        std::ssize(around.after);
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
  if (tokenizer.pair_style() == PairStyle::kT5) {  // a text that brings its end gets no second one
    for (std::vector<int32_t>* ids : {&first, second ? &*second : nullptr}) {
      if (ids != nullptr && !ids->empty() && ids->back() == tokenizer.eos_id()) ids->pop_back();
    }
  }
  EncodedRow row;
  const auto append = [&row](const std::vector<int32_t>& ids) {
    row.ids.insert(row.ids.end(), ids.begin(), ids.end());
  };
  append(around.before);
  append(first);
  append(around.between);
  const size_t first_part = row.ids.size() - static_cast<size_t>(around.of_second);
  if (second) append(*second);
  append(around.after);
  row.token_type_ids.assign(row.ids.size(), 0);
  if (second && around.types) {
    std::fill(row.token_type_ids.begin() + static_cast<ptrdiff_t>(first_part),
              row.token_type_ids.end(), 1);
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
