// SPDX-License-Identifier: Apache-2.0
// A tokenizer's tokens as texts, in the order of a tree over their bytes.
//
//   const auto vocabulary = Vocabulary::Of(tokenizer);
//   const TokenTree& tree = vocabulary->tokens();
//   for (int32_t i = 0; i < tree.size();) { ... tree.byte(i) ...; i = fits ? i + 1 : tree.end(i); }
//
// Other special tokens than those that are asked for, and tokens without text, are no part of it.
// Immutable; safe from several threads.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_VOCABULARY_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace tessera::models {

// Nodes in depth-first order, so that a walk over them reads memory from front to back.
// (data::ByteTrie finds a text's tokens; it does not list a node's children, and keeps one of the
// tokens with the same text.)
class TokenTree {
 public:
  explicit TokenTree(std::vector<std::pair<std::string_view, int32_t>> tokens);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  uint8_t byte(int32_t node) const { return at(node).byte; }
  // How many bytes lead to a node: 1 of a root's child.
  int depth(int32_t node) const { return at(node).depth; }
  // The first node behind those below `node`.
  int32_t end(int32_t node) const { return at(node).end; }
  // The tokens that end at a node.
  std::span<const int32_t> ids(int32_t node) const {
    const Node& n = at(node);
    return std::span(ids_).subspan(static_cast<size_t>(n.first_id), static_cast<size_t>(n.ids));
  }
  int longest() const { return longest_; }

 private:
  struct Node {
    int32_t end;
    int32_t first_id;
    int32_t ids;
    uint16_t depth;
    uint8_t byte;
  };
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }

  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  int longest_ = 0;
};

class Vocabulary {
 public:
  // `marks`: special tokens that are a part of the tree by their texts; those that the tokenizer
  // does not have count for nothing. The tokenizer must outlive it.
  static std::shared_ptr<const Vocabulary> Of(const data::Tokenizer& tokenizer,
                                              const std::vector<std::string>& marks = {});

  const TokenTree& tokens() const { return tokens_; }
  // The tokens as they begin a text.
  const TokenTree& first_tokens() const { return first_tokens_ ? *first_tokens_ : tokens_; }
  int64_t size() const { return std::ssize(texts_); }
  // Empty for tokens that are not in the tree.
  std::string_view Text(int32_t id, bool first) const {
    const auto& texts = first && first_tokens_ ? first_texts_ : texts_;
    return id < 0 || id >= std::ssize(texts) ? std::string_view() : texts[static_cast<size_t>(id)];
  }
  // Whether a token is that byte alone.
  bool has_byte(uint8_t byte) const { return has_byte_[byte]; }
  // The fewest tokens that a text can be cut into; < 0: it cannot.
  int64_t FewestTokens(std::string_view text) const;

 private:
  explicit Vocabulary(std::vector<std::string_view> texts, std::vector<std::string_view> first);

  std::vector<std::string_view> texts_;
  std::vector<std::string_view> first_texts_;
  TokenTree tokens_;
  std::unique_ptr<const TokenTree> first_tokens_;  // nullptr: the same
  std::array<bool, 256> has_byte_ = {};
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_VOCABULARY_H_
