// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/unigram.h"

#include <algorithm>

#include "base/utf8.h"
#include "core/execution_context.h"

namespace tessera::data {

template <typename Score>
void Unigram<Score>::Segment(std::string_view text, std::vector<Piece>* pieces) const {
  // The best way to an end: its score and the last piece's length (0: there is no way) and id.
  struct Node {
    Score score = 0;
    uint32_t length = 0;
    int32_t id = kUnknown;
  };
  std::vector<Node> best(text.size() + 1);
  const auto offer = [&best](size_t begin, size_t end, auto score, int32_t id) {
    Node& node = best[end];
    if (node.length != 0 && !(score > node.score)) return;
    node = {static_cast<Score>(score), static_cast<uint32_t>(end - begin), id};
  };
  for (size_t i = 0; i < text.size();) {
    StopIfCancelled();
    const size_t length = AnnouncedUtf8Length(text, i);
    const Score so_far = best[i].score;
    bool has_single = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t end = i; end < text.size();) {
      node = trie_.Child(node, static_cast<uint8_t>(text[end]));
      if (node < 0) break;
      ++end;
      const int32_t id = trie_.id(node);
      if (id < 0) continue;
      // In double: rounded where it is kept, not where it is compared.
      offer(i, end, scores_[static_cast<size_t>(id)] + double{so_far}, id);
      has_single |= end - i == length;
    }
    if (!has_single) offer(i, i + length, unknown_score_ + so_far, kUnknown);
    i += length;
  }
  const size_t first = pieces->size();
  for (size_t end = text.size(); end > 0; end -= best[end].length) {
    pieces->push_back({end - best[end].length, end, best[end].id});
  }
  std::reverse(pieces->begin() + static_cast<ptrdiff_t>(first), pieces->end());
}

template class Unigram<float>;
template class Unigram<double>;

}  // namespace tessera::data
