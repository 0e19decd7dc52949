// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/pair_trainer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "base/utf8.h"

namespace tessera::data {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(pair.first)} << 32) | static_cast<uint32_t>(pair.second);
    return static_cast<size_t>((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u);
  }
};

// A pair with the words that it may stand in. Its count may have changed since.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<size_t> words;

  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class PairTrainer {
 public:
  PairTrainer(const std::vector<CountedWord>& words, const PairTrainerOptions& options)
      : counted_(words), options_(options) {}

  LearntPairs Run() {
    for (const std::string& token : options_.special_tokens) AddPiece(token);
    AddAlphabet();
    CutWords();
    CountPairs();
    while (std::ssize(learnt_.vocab) < options_.vocab_size && !queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      Candidate top = std::move(queue_.back());
      queue_.pop_back();
      const int64_t now = counts_.at(top.pair);
      if (top.count != now) {
        top.count = now;
        Queue(std::move(top));
        continue;
      }
      if (top.count < std::max<int64_t>(options_.min_frequency, 1)) break;
      Merge(top);
    }
    return std::move(learnt_);
  }

 private:
  int32_t AddPiece(const std::string& piece) {
    const auto id = static_cast<int32_t>(learnt_.vocab.size());
    const auto [at, is_new] = ids_.try_emplace(piece, id);
    if (is_new) learnt_.vocab.push_back(piece);
    return at->second;
  }

  void AddAlphabet() {
    std::map<char32_t, int64_t> counts;
    int64_t total = 0;
    for (const CountedWord& word : counted_) {
      for (size_t i = 0; i < word.text.size();) {
        const Utf8Char c = DecodeUtf8(word.text, i);
        counts[c.code_point] += word.count;
        total += word.count;
        i += static_cast<size_t>(c.length);
      }
    }
    LeaveOutRarest(total, &counts);
    for (const std::string& character : options_.alphabet) {
      counts.try_emplace(DecodeUtf8(character, 0).code_point, 0);
    }
    for (const auto& [code_point, count] : counts) {
      std::string piece;
      AppendUtf8(code_point, &piece);
      AddPiece(piece);
    }
  }

  void LeaveOutRarest(int64_t total, std::map<char32_t, int64_t>* counts) const {
    if (options_.character_coverage >= 1) return;
    std::vector<std::pair<int64_t, char32_t>> rarest;
    for (const auto& [code_point, count] : *counts) rarest.emplace_back(count, code_point);
    std::sort(rarest.begin(), rarest.end());
    const auto least = static_cast<double>(total) * options_.character_coverage;
    int64_t left = total;
    for (const auto& [count, code_point] : rarest) {
      left -= count;
      if (static_cast<double>(left) < least) break;
      counts->erase(code_point);
    }
  }

  void CutWords() {
    words_.resize(counted_.size());
    for (size_t w = 0; w < counted_.size(); ++w) {
      const std::string& text = counted_[w].text;
      for (size_t i = 0; i < text.size();) {
        const auto length = static_cast<size_t>(DecodeUtf8(text, i).length);
        std::string piece = text.substr(i, length);
        const bool known = ids_.contains(piece);
        if (known && i > 0) piece.insert(0, options_.continuing_prefix);
        i += length;
        if (known) words_[w].push_back(AddPiece(piece));
      }
    }
  }

  void Count(const Pair& pair, int64_t change, size_t word) {
    counts_[pair] += change;
    if (change <= 0) return;
    std::vector<size_t>& words = found_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void Queue(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }

  void QueueFound() {
    for (auto& [pair, words] : found_) {
      const int64_t count = counts_.at(pair);
      if (count > 0) Queue({count, pair, std::move(words)});
    }
    found_.clear();
  }

  void CountPairs() {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (size_t i = 1; i < words_[w].size(); ++i) {
        Count({words_[w][i - 1], words_[w][i]}, counted_[w].count, w);
      }
    }
    QueueFound();
  }

  void Merge(const Candidate& top) {
    const auto [left, right] = top.pair;
    std::string_view tail = learnt_.vocab[static_cast<size_t>(right)];
    if (tail.starts_with(options_.continuing_prefix)) {
      tail.remove_prefix(options_.continuing_prefix.size());
    }
    const int32_t merged = AddPiece(learnt_.vocab[static_cast<size_t>(left)] + std::string(tail));
    learnt_.merges.push_back(top.pair);
    for (const size_t w : top.words) MergeIn(w, top.pair, merged);
    QueueFound();
  }

  // The count of the pair itself stays as it is: nobody asks for it again.
  void MergeIn(size_t w, const Pair& pair, int32_t merged) {
    std::vector<int32_t>& word = words_[w];
    const int64_t count = counted_[w].count;
    size_t to = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      const bool found = word[i] == pair.first && i + 1 < word.size() && word[i + 1] == pair.second;
      if (!found) {
        word[to++] = word[i];
        continue;
      }
      if (to > 0) {
        Count({word[to - 1], pair.first}, -count, w);
        Count({word[to - 1], merged}, count, w);
      }
      if (i + 2 < word.size()) {
        Count({pair.second, word[i + 2]}, -count, w);
        Count({merged, word[i + 2]}, count, w);
      }
      word[to++] = merged;
      ++i;
    }
    word.resize(to);
  }

  const std::vector<CountedWord>& counted_;
  const PairTrainerOptions& options_;
  LearntPairs learnt_;
  std::unordered_map<std::string, int32_t> ids_;  // of pieces
  std::vector<std::vector<int32_t>> words_;       // as ids
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<size_t>, PairHash>
      found_;                     // since the queue was last filled
  std::vector<Candidate> queue_;  // a heap
};

}  // namespace

LearntPairs LearnPairs(const std::vector<CountedWord>& words, const PairTrainerOptions& options) {
  return PairTrainer(words, options).Run();
}

}  // namespace tessera::data
