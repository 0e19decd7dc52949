// SPDX-License-Identifier: Apache-2.0
// Which tokens may continue a text of a grammar.
//
//   const auto vocabulary = Vocabulary::Of(tokenizer);
//   TESSERA_ASSIGN_OR_RETURN(const auto grammar,
//       TokenGrammar::Of(*JsonSchemaGrammar(schema, "schema"), vocabulary));
//   GrammarText text(grammar, /*begins_text=*/false);
//   const TokenMask mask = text.Allowed(/*tokens_left=*/100);   // of the next token
//   if (mask.Has(id)) text.Add(id);
//
// A token is allowed where its bytes are, wherever they cut the grammar's elements. What a rule
// allows on its own is computed once for each of its states and kept; what depends on where the
// rule was called is looked at each time. A grammar is safe from several threads; a text belongs to
// one.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_TOKEN_GRAMMAR_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_TOKEN_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "models/generation/grammar/byte_grammar.h"
#include "models/generation/grammar/vocabulary.h"

namespace tessera::models {

// A set of tokens.
class TokenMask {
 public:
  explicit TokenMask(int64_t size = 0) : words_(static_cast<size_t>((size + 63) / 64)) {}

  void Set(int64_t id) { words_[static_cast<size_t>(id / 64)] |= uint64_t{1} << (id % 64); }
  // Beyond the set's size, too.
  void Set(int64_t id, bool allowed);
  bool Has(int64_t id) const {
    const auto word = static_cast<size_t>(id / 64);
    return id >= 0 && word < words_.size() && ((words_[word] >> (id % 64)) & 1) != 0;
  }
  void Add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool empty() const;
  // -infinity for every score of a token that is not in the set. Whether a greater one is left.
  bool Apply(std::span<double> scores) const;
  // 0 for every score of a token in the set, and -infinity for the others.
  void Fill(std::span<double> scores) const;

 private:
  std::vector<uint64_t> words_;
};

class TokenGrammar {
 public:
  // InvalidArgument: the tokens cannot write any text of the grammar.
  static StatusOr<std::shared_ptr<const TokenGrammar>> Of(
      ByteGrammar grammar, std::shared_ptr<const Vocabulary> vocabulary);

  const ByteGrammar& grammar() const { return grammar_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

  // Tokens that may follow the points. Of them those alone after which `tokens_left` - 1 more can
  // complete the text, where there are any; < 0: as many as it takes. `first`: tokens as they begin
  // a text.
  TokenMask Allowed(const GrammarPoints& points, int64_t tokens_left, bool first) const;
  // At most so many tokens complete the text; ShortestEndings::kNever: it is not known how.
  int64_t TokensToComplete(const GrammarPoints& points) const;

 private:
  // What a state of a rule allows, whoever called the rule.
  struct Local {
    TokenMask allowed;
    std::vector<int32_t> ends;  // nodes of the vocabulary at which the rule may have ended
    int64_t most_left = 0;      // tokens to the rule's end behind any allowed token
  };
  struct Found;
  class Walk;

  TokenGrammar(ByteGrammar grammar, std::shared_ptr<const Vocabulary> vocabulary);

  std::shared_ptr<const Local> LocalOf(ByteGrammar::StateId state) const;
  // Tokens from a state to its rule's end, and from a point to the end of all.
  int64_t TokensLeft(ByteGrammar::StateId state) const;
  int64_t TokensLeft(const GrammarStack* stack) const;
  TokenMask AllowedWithin(const GrammarPoints& points, int64_t tokens_left, bool first) const;

  const ByteGrammar grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const ShortestEndings endings_;

  mutable std::mutex mutex_;  // over the two below
  mutable std::unordered_map<ByteGrammar::StateId, std::shared_ptr<const Local>> locals_;
  mutable std::unordered_map<ByteGrammar::StateId, int64_t> tokens_left_;
};

// One text of a grammar, token by token. Copies go their own ways.
class GrammarText {
 public:
  // `begins_text`: the first token is written as tokens that begin a text are.
  GrammarText(std::shared_ptr<const TokenGrammar> grammar, bool begins_text)
      : grammar_(std::move(grammar)), state_(grammar_->grammar()), first_(begins_text) {}

  TokenMask Allowed(int64_t tokens_left = -1) const {
    return grammar_->Allowed(state_.points(), tokens_left, first_);
  }
  // False, and nothing changes, for a token that is not allowed.
  bool Add(int32_t id);

  // Whether the text may end here, and whether it must.
  bool complete() const { return state_.complete(); }
  bool finished() const { return state_.finished(); }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
  GrammarState state_;
  bool first_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_TOKEN_GRAMMAR_H_
