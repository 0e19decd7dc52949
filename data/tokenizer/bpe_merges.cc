// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/bpe_merges.h"

#include <cstring>
#include <queue>

#include "core/execution_context.h"

namespace tessera::data {

BpeMerges::BpeMerges(size_t count) {
  size_t size = 16;
  while (size < 2 * (count + 1)) size *= 2;
  slots_.assign(size, Slot{kEmpty, {kNoRank, -1}});
  mask_ = size - 1;
}

void BpeMerges::Insert(const Slot& slot) {
  for (size_t i = Home(slot.key);; i = (i + 1) & mask_) {
    if (slots_[i].key == kEmpty) ++count_;
    if (slots_[i].key == kEmpty || slots_[i].key == slot.key) {
      slots_[i] = slot;
      return;
    }
  }
}

void BpeMerges::Grow() {
  std::vector<Slot> old(slots_.size() * 2, Slot{kEmpty, {kNoRank, -1}});
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.key != kEmpty) Insert(slot);
  }
}

void BpeMerges::Add(int32_t left, int32_t right, int32_t rank, int32_t result) {
  if (2 * (count_ + 1) > slots_.size()) Grow();
  Insert(Slot{Key(left, right), Rule{rank, result}});
}

void BpeMerges::ApplyShort(int32_t* ids, int* n) const {
  Rule rules[kMaxShort];  // rules[i] is that of the pair (i, i + 1)
  int pairs = *n - 1;
  for (int i = 0; i < pairs; ++i) rules[i] = Find(ids[i], ids[i + 1]);
  while (pairs > 0) {
    int best = 0;
    for (int i = 1; i < pairs; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == kNoRank) break;
    ids[best] = rules[best].result;
    const size_t behind = static_cast<size_t>(pairs - best - 1);
    std::memmove(ids + best + 1, ids + best + 2, behind * sizeof(ids[0]));
    std::memmove(rules + best, rules + best + 1, behind * sizeof(rules[0]));
    --pairs;
    if (best > 0) rules[best - 1] = Find(ids[best - 1], ids[best]);
    if (best < pairs) rules[best] = Find(ids[best], ids[best + 1]);
  }
  *n = pairs + 1;
}

void BpeMerges::ApplyLong(std::vector<int32_t>* ids, Parts* parts) const {
  // The word as a linked list; a candidate whose pair has changed since is recognised by its rank.
  struct Symbol {
    int32_t id;
    int32_t rank;  // of the pair with the next symbol
    int64_t previous;
    int64_t next;
  };
  const auto n = static_cast<int64_t>(ids->size());
  std::vector<Symbol> symbols(ids->size());
  using Candidate = std::pair<int32_t, int64_t>;  // rank, position: the least comes first
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int64_t i) {
    Symbol& symbol = symbols[i];
    symbol.rank = kNoRank;
    if (symbol.next >= n) return;
    const int32_t right = symbols[symbol.next].id;
    const Rule rule = Find(symbol.id, right);
    if (rule.rank == kNoRank) return;
    symbol.rank = rule.rank;
    queue.emplace(rule.rank, i);
    if (parts != nullptr) (*parts)[rule.result] = {symbol.id, right};
  };
  for (int64_t i = 0; i < n; ++i) symbols[i] = {(*ids)[i], kNoRank, i - 1, i + 1};
  for (int64_t i = 0; i < n; ++i) {
    StopIfCancelled();
    consider(i);
  }
  while (!queue.empty()) {
    const auto [rank, i] = queue.top();
    queue.pop();
    StopIfCancelled();
    Symbol& left = symbols[i];
    if (left.rank != rank) continue;
    Symbol& right = symbols[left.next];
    left.id = Find(left.id, right.id).result;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next < n) symbols[left.next].previous = i;
    if (left.previous >= 0) consider(left.previous);
    consider(i);
  }
  ids->clear();
  for (int64_t i = 0; i < n; i = symbols[i].next) ids->push_back(symbols[i].id);
}

void BpeMerges::Apply(std::vector<int32_t>* ids) const {
  if (ids->size() > static_cast<size_t>(kMaxShort)) {
    ApplyLong(ids, nullptr);
    return;
  }
  int n = static_cast<int>(ids->size());
  if (n > 1) ApplyShort(ids->data(), &n);
  ids->resize(static_cast<size_t>(n));
}

}  // namespace tessera::data
