// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/vocabulary.h"

#include <algorithm>
#include <optional>

namespace tessera::models {
namespace {

// Longer tokens are not written: no real vocabulary has them.
constexpr size_t kLongestToken = 4096;

std::vector<std::pair<std::string_view, int32_t>> Entries(
    const std::vector<std::string_view>& texts) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) entries.emplace_back(texts[id], static_cast<int32_t>(id));
  }
  return entries;
}

}  // namespace

TokenTree::TokenTree(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<int32_t> way;  // the nodes of the last token's bytes
  std::string_view last;
  for (const auto& [text, id] : tokens) {
    const auto shared = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
    for (; way.size() > shared; way.pop_back()) {
      nodes_[static_cast<size_t>(way.back())].end = size();
    }
    for (size_t i = shared; i < text.size(); ++i) {
      way.push_back(size());
      nodes_.push_back({.end = 0,
                        .first_id = static_cast<int32_t>(ids_.size()),
                        .ids = 0,
                        .depth = static_cast<uint16_t>(i + 1),
                        .byte = static_cast<uint8_t>(text[i])});
    }
    Node& node = nodes_[static_cast<size_t>(way.back())];
    if (node.ids++ == 0) node.first_id = static_cast<int32_t>(ids_.size());
    ids_.push_back(id);
    longest_ = std::max(longest_, static_cast<int>(text.size()));
    last = text;
  }
  for (const int32_t node : way) nodes_[static_cast<size_t>(node)].end = size();
}

Vocabulary::Vocabulary(std::vector<std::string_view> texts, std::vector<std::string_view> first)
    : texts_(std::move(texts)), first_texts_(std::move(first)), tokens_(Entries(texts_)) {
  if (first_texts_ == texts_) {
    first_texts_.clear();
  } else {
    first_tokens_ = std::make_unique<const TokenTree>(Entries(first_texts_));
  }
  for (const std::string_view text : texts_) {
    if (text.size() == 1) has_byte_[static_cast<uint8_t>(text[0])] = true;
  }
}

std::shared_ptr<const Vocabulary> Vocabulary::Of(const data::Tokenizer& tokenizer,
                                                 const std::vector<std::string>& marks) {
  std::vector<std::string_view> texts(static_cast<size_t>(tokenizer.vocab_size()));
  std::vector<std::string_view> first(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (tokenizer.IsSpecial(id)) continue;
    const std::string_view text = tokenizer.TokenBytes(id);
    if (text.size() > kLongestToken) continue;
    texts[i] = text;
    if (!text.empty()) first[i] = tokenizer.FirstTokenBytes(id);
  }
  for (const std::string& mark : marks) {
    const std::optional<int32_t> id = tokenizer.FindSpecial(mark);
    if (!id) continue;
    texts[static_cast<size_t>(*id)] = tokenizer.TokenBytes(*id);
    first[static_cast<size_t>(*id)] = tokenizer.FirstTokenBytes(*id);
  }
  return std::shared_ptr<const Vocabulary>(new Vocabulary(std::move(texts), std::move(first)));
}

int64_t Vocabulary::FewestTokens(std::string_view text) const {
  constexpr int64_t kNone = INT64_MAX;
  std::vector<int64_t> fewest(text.size() + 1, kNone);
  fewest[0] = 0;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (fewest[begin] == kNone) continue;
    int32_t node = 0;
    int32_t end = tokens_.size();
    for (size_t i = begin; i < text.size(); ++i) {
      while (node < end && tokens_.byte(node) != static_cast<uint8_t>(text[i])) {
        node = tokens_.end(node);
      }
      if (node >= end) break;
      if (!tokens_.ids(node).empty()) {
        fewest[i + 1] = std::min(fewest[i + 1], fewest[begin] + 1);
      }
      end = tokens_.end(node);
      ++node;
    }
  }
  return fewest.back() == kNone ? -1 : fewest.back();
}

}  // namespace tessera::models
