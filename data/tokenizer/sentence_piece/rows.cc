// SPDX-License-Identifier: Apache-2.0
// The rows that SentencePiece tokenizers make of texts (sequence_pair.h).
#include <optional>
#include <tuple>
#include <utility>

#include "data/tokenizer/sentence_piece/sentence_piece.h"

namespace tessera::data {

void SentencePieceTokenizer::SetRows() {
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  std::optional<RowTemplate> single;
  std::optional<RowTemplate> pair;
  switch (config_.family) {
    case SentencePieceFamily::kAlbert:
      return SetBertRows();
    case SentencePieceFamily::kXlmRoberta:
      return SetRobertaRows();
    case SentencePieceFamily::kT5:  // a </s> b </s>
      single = RowTemplate::Of({{kFirst, 0}, {eos_id_, 0}});
      pair = RowTemplate::Of({{kFirst, 0}, {eos_id_, 0}, {kSecond, 0}, {eos_id_, 0}});
      if (single) single->text_end = pair->text_end = *eos_id_;
      break;
    case SentencePieceFamily::kLlama:  // <s> a <s> b, </s> behind each where that is asked for
      std::tie(single, pair) = LlamaRows();
      break;
    case SentencePieceFamily::kGlm:  // [CLS] a <|endoftext|>
      single = RowTemplate::Of({{cls_id_, 0}, {kFirst, 0}, {eos_id_, 0}});
      break;
    case SentencePieceFamily::kChatGlm: {  // a [gMASK] <sop> b <eop>
      const auto gmask = FindSpecial("[gMASK]");
      single = RowTemplate::Of({{kFirst, 0}, {gmask, 0}, {bos_id_, 0}});
      pair = RowTemplate::Of({{kFirst, 0}, {gmask, 0}, {bos_id_, 0}, {kSecond, 0}, {eos_id_, 0}});
      break;
    }
  }
  set_rows(std::move(single), std::move(pair), /*of_prompts=*/true);
}

SentencePieceTokenizer::Rows SentencePieceTokenizer::LlamaRows() const {
  if ((config_.add_bos && !bos_id_) || (config_.add_eos && !eos_id_)) return {};
  RowTemplate single;
  RowTemplate pair;
  const auto add = [&](int32_t id, int32_t type) {
    if (type == 0) single.items.push_back({id, type});
    pair.items.push_back({id, type});
  };
  for (const int32_t type : {0, 1}) {
    if (config_.add_bos) add(*bos_id_, type);
    add(type == 0 ? RowTemplate::kFirst : RowTemplate::kSecond, type);
    if (config_.add_eos) add(*eos_id_, type);
  }
  return {single, pair};
}

}  // namespace tessera::data
