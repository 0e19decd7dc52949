// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/token_grammar.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace tessera::models {
namespace {

using StateId = ByteGrammar::StateId;

constexpr double kRemoved = -std::numeric_limits<double>::infinity();
constexpr int64_t kNever = ShortestEndings::kNever;
// A byte that no token is alone costs as many others: endings avoid it where they can.
constexpr int64_t kMissingByte = 1000;
// Endings beyond this length count as endless.
constexpr size_t kLongestEnding = 1 << 16;
// What is remembered of states is forgotten beyond this number.
constexpr size_t kMostLocals = 4096;
constexpr size_t kMostLengths = 1 << 20;

std::array<int64_t, 256> ByteCosts(const Vocabulary& vocabulary) {
  std::array<int64_t, 256> costs;
  for (size_t b = 0; b < costs.size(); ++b) {
    costs[b] = vocabulary.has_byte(static_cast<uint8_t>(b)) ? 1 : kMissingByte;
  }
  return costs;
}

}  // namespace

bool TokenMask::empty() const {
  return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
}

void TokenMask::Set(int64_t id, bool allowed) {
  const auto word = static_cast<size_t>(id / 64);
  if (id < 0 || (!allowed && word >= words_.size())) return;
  words_.resize(std::max(words_.size(), word + 1));
  Set(id);
  if (!allowed) words_[word] &= ~(uint64_t{1} << (id % 64));
}

bool TokenMask::Apply(std::span<double> scores) const {
  bool left = false;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!Has(static_cast<int64_t>(i))) scores[i] = kRemoved;
    left |= scores[i] > kRemoved;
  }
  return left;
}

void TokenMask::Fill(std::span<double> scores) const {
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = Has(static_cast<int64_t>(i)) ? 0 : kRemoved;
  }
}

// A walk over a part of the vocabulary's tree, from points of a text. Most of it is at one state of
// one rule, whose stack no byte touches.
class TokenGrammar::Walk {
 public:
  Walk(const ByteGrammar& grammar, const TokenTree& tree) : grammar_(grammar), tree_(tree) {}

  // Nodes [node, end), all below what has `depth` bytes. Calls f(node, points) for each that can be
  // reached, where there are several points or one with another stack, or else f(node, state), of
  // the stack of `from`.
  template <typename F>
  void Run(const GrammarPoints& from, int32_t node, int32_t end, int depth, const F& f) {
    frames_.resize(static_cast<size_t>(tree_.longest() + 1));
    const std::shared_ptr<const GrammarStack> stack = from.size() == 1 ? from[0].stack : nullptr;
    Frame& start = frames_[static_cast<size_t>(depth)];
    start.state = from.size() == 1 ? from[0].state : -1;
    start.points = from;
    while (node < end) {
      const auto at = static_cast<size_t>(tree_.depth(node));
      const Frame& before = frames_[at - 1];
      Frame& now = frames_[at];
      const uint8_t byte = tree_.byte(node);
      if (before.state >= 0 && grammar_.calls(before.state).empty() &&
          (stack == nullptr || !grammar_.accepts(before.state))) {
        now.state = grammar_.Next(before.state, byte);
        if (now.state < 0) {
          node = tree_.end(node);
          continue;
        }
        f(node, now.state);
      } else {
        Step(before, stack, byte, &now);
        if (now.state < 0 && now.points.empty()) {
          node = tree_.end(node);
          continue;
        }
        if (now.state >= 0) {
          f(node, now.state);
        } else {
          f(node, now.points);
        }
      }
      ++node;
    }
  }

 private:
  struct Frame {
    StateId state = -1;  // >= 0: a single point, with the stack of the beginning
    GrammarPoints points;
  };

  void Step(const Frame& before, const std::shared_ptr<const GrammarStack>& stack, uint8_t byte,
            Frame* now) {
    now->points.clear();
    now->state = -1;
    if (before.state >= 0) {
      StepInto(grammar_, {before.state, stack}, byte, &now->points);
    } else {
      for (const GrammarPoint& point : before.points) {
        StepInto(grammar_, point, byte, &now->points);
      }
    }
    if (now->points.size() == 1 && now->points[0].stack == stack) {
      now->state = now->points[0].state;
    }
  }

  const ByteGrammar& grammar_;
  const TokenTree& tree_;
  std::vector<Frame> frames_;  // by depth
};

TokenGrammar::TokenGrammar(ByteGrammar grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      endings_(grammar_, ByteCosts(*vocabulary_)) {}

StatusOr<std::shared_ptr<const TokenGrammar>> TokenGrammar::Of(
    ByteGrammar grammar, std::shared_ptr<const Vocabulary> vocabulary) {
  std::shared_ptr<const TokenGrammar> made(
      new TokenGrammar(std::move(grammar), std::move(vocabulary)));
  if (made->TokensToComplete({{made->grammar_.start(), nullptr}}) >= kNever) {
    std::string text;
    made->endings_.Append(made->grammar_.start(), 60, &text);
    return InvalidArgument("the tokenizer has no tokens for ", text.substr(0, 60));
  }
  return made;
}

int64_t TokenGrammar::TokensLeft(StateId state) const {
  // A length that is far off is the sum of characters: their tokens are not counted one by one.
  const int64_t cost = endings_.Cost(state);
  if (cost > static_cast<int64_t>(kLongestEnding)) return kNever;
  {
    const std::lock_guard lock(mutex_);
    const auto found = tokens_left_.find(state);
    if (found != tokens_left_.end()) return found->second;
  }
  std::string text;
  int64_t tokens = kNever;
  if (endings_.Append(state, kLongestEnding, &text)) {
    tokens = vocabulary_->FewestTokens(text);
    if (tokens < 0) tokens = kNever;
  }
  const std::lock_guard lock(mutex_);
  if (tokens_left_.size() > kMostLengths) tokens_left_.clear();
  tokens_left_[state] = tokens;
  return tokens;
}

int64_t TokenGrammar::TokensLeft(const GrammarStack* stack) const {
  int64_t tokens = 0;
  for (; stack != nullptr; stack = stack->rest.get()) {
    tokens = std::min(kNever, tokens + TokensLeft(stack->to));
  }
  return tokens;
}

int64_t TokenGrammar::TokensToComplete(const GrammarPoints& points) const {
  int64_t fewest = kNever;
  for (const GrammarPoint& point : points) {
    std::string text;
    bool ends = endings_.Append(point.state, kLongestEnding, &text);
    for (const GrammarStack* at = point.stack.get(); at != nullptr && ends; at = at->rest.get()) {
      ends = endings_.Append(at->to, kLongestEnding, &text);
    }
    if (!ends) continue;
    const int64_t tokens = vocabulary_->FewestTokens(text);
    if (tokens >= 0) fewest = std::min(fewest, tokens);
  }
  return fewest;
}

std::shared_ptr<const TokenGrammar::Local> TokenGrammar::LocalOf(StateId state) const {
  const TokenTree& tree = vocabulary_->tokens();
  state = grammar_.Alike(state, tree.longest());
  {
    const std::lock_guard lock(mutex_);
    const auto found = locals_.find(state);
    if (found != locals_.end()) return found->second;
  }
  auto local = std::make_shared<Local>();
  local->allowed = TokenMask(vocabulary_->size());
  std::unordered_map<StateId, int64_t> lengths;
  const auto length_of = [&](StateId s) {
    const auto [found, added] = lengths.try_emplace(s, 0);
    if (added) found->second = TokensLeft(s);
    return found->second;
  };
  const auto add = [&](int32_t node, int64_t left, bool ended) {
    const auto ids = tree.ids(node);
    for (const int32_t id : ids) local->allowed.Set(id);
    if (!ids.empty()) local->most_left = std::max(local->most_left, left);
    if (ended && tree.end(node) > node + 1) local->ends.push_back(node);
  };
  struct Visitor {
    const TokenGrammar& grammar;
    const decltype(add)& add_node;
    const decltype(length_of)& length;
    void operator()(int32_t node, StateId state) const {
      const bool counts = !grammar.vocabulary_->tokens().ids(node).empty();
      add_node(node, counts ? length(state) : 0, grammar.grammar_.accepts(state));
    }
    void operator()(int32_t node, const GrammarPoints& points) const {
      int64_t left = kNever;
      bool ended = false;
      for (const GrammarPoint& point : points) {
        int64_t tokens = length(point.state);
        for (const GrammarStack* at = point.stack.get(); at != nullptr; at = at->rest.get()) {
          tokens = std::min(kNever, tokens + length(at->to));
        }
        left = std::min(left, tokens);
        ended |= MayEnd(grammar.grammar_, point);
      }
      add_node(node, left, ended);
    }
  };
  Walk(grammar_, tree).Run({{state, nullptr}}, 0, tree.size(), 0, Visitor{*this, add, length_of});
  const std::lock_guard lock(mutex_);
  if (locals_.size() > kMostLocals) locals_.clear();
  locals_[state] = local;
  return local;
}

// The tokens that were found, and how many more the worst of them asks for.
struct TokenGrammar::Found {
  const TokenGrammar& grammar;
  const std::shared_ptr<const GrammarStack> stack;  // of single states
  TokenMask* mask;
  int64_t stack_left = 0;
  int64_t most_left = 0;

  void Add(int32_t node, int64_t left) {
    for (const int32_t id : grammar.vocabulary_->tokens().ids(node)) {
      mask->Set(id);
      most_left = std::max(most_left, left);
    }
  }
  void operator()(int32_t node, StateId state) {
    if (grammar.vocabulary_->tokens().ids(node).empty()) return;
    Add(node, std::min(kNever, grammar.TokensLeft(state) + stack_left));
  }
  void operator()(int32_t node, const GrammarPoints& points) {
    if (grammar.vocabulary_->tokens().ids(node).empty()) return;
    int64_t left = kNever;
    for (const GrammarPoint& point : points) {
      const int64_t tokens =
          grammar.TokensLeft(point.state) + grammar.TokensLeft(point.stack.get());
      left = std::min(left, tokens);
    }
    Add(node, left);
  }
};

TokenMask TokenGrammar::Allowed(const GrammarPoints& points, int64_t tokens_left,
                                bool first) const {
  const TokenTree& tree = vocabulary_->tokens();
  // The budget counts where it is near, and where tokens lack bytes that might be needed.
  if (first && &vocabulary_->first_tokens() != &tree) {
    return AllowedWithin(points, tokens_left, true);
  }
  TokenMask mask(vocabulary_->size());
  int64_t most_left = 0;
  // Where a rule may end, its caller continues, too.
  GrammarPoints all = points;
  for (size_t i = 0; i < all.size(); ++i) {
    const GrammarPoint point = all[i];
    if (point.stack == nullptr) continue;
    // A token might call too deeply, which what is kept of a state does not know.
    if (point.stack->depth + tree.longest() > kDeepestCall) {
      return AllowedWithin(points, tokens_left, first);
    }
    if (grammar_.accepts(point.state)) all.push_back({point.stack->to, point.stack->rest});
  }
  for (const GrammarPoint& point : all) {
    const std::shared_ptr<const Local> local = LocalOf(point.state);
    mask.Add(local->allowed);
    const int64_t stack_left = TokensLeft(point.stack.get());
    most_left = std::max(most_left, std::min(kNever, local->most_left + stack_left));
    if (point.stack == nullptr) continue;
    const GrammarPoints behind = {{point.stack->to, point.stack->rest}};
    Found found{*this, behind[0].stack, &mask, TokensLeft(behind[0].stack.get())};
    Walk walk(grammar_, tree);
    for (const int32_t node : local->ends) {
      walk.Run(behind, node + 1, tree.end(node), tree.depth(node),
               [&](int32_t n, const auto& reached) { found(n, reached); });
    }
    most_left = std::max(most_left, found.most_left);
  }
  const bool enough = most_left < (tokens_left < 0 ? kNever : tokens_left);
  return enough ? mask : AllowedWithin(points, tokens_left, first);
}

// Token by token, where not each one may be taken.
TokenMask TokenGrammar::AllowedWithin(const GrammarPoints& points, int64_t tokens_left,
                                      bool first) const {
  const TokenTree& tree = first ? vocabulary_->first_tokens() : vocabulary_->tokens();
  const int64_t most = tokens_left < 0 ? kNever - 1 : tokens_left - 1;
  TokenMask all(vocabulary_->size());
  TokenMask within(vocabulary_->size());
  // Most tokens lead to few points: of the same stacks, to states.
  std::map<StateId, bool> known;
  const auto add = [&](int32_t node, bool fits) {
    for (const int32_t id : tree.ids(node)) {
      all.Set(id);
      if (fits) within.Set(id);
    }
  };
  const auto fits = [&](const GrammarPoints& reached) {
    for (const GrammarPoint& point : reached) {
      if (TokensLeft(point.state) + TokensLeft(point.stack.get()) <= most) return true;
    }
    return TokensToComplete(reached) <= most;
  };
  struct Visitor {
    const std::shared_ptr<const GrammarStack> stack;
    const decltype(fits)& fits_within;
    const decltype(add)& add_node;
    const TokenTree& tree;
    std::map<StateId, bool>& known;
    void operator()(int32_t node, StateId state) const {
      if (tree.ids(node).empty()) return;
      const auto [found, added] = known.try_emplace(state, false);
      if (added) found->second = fits_within(GrammarPoints{{state, stack}});
      add_node(node, found->second);
    }
    void operator()(int32_t node, const GrammarPoints& reached) const {
      if (!tree.ids(node).empty()) add_node(node, fits_within(reached));
    }
  };
  const auto stack = points.size() == 1 ? points[0].stack : nullptr;
  Walk(grammar_, tree).Run(points, 0, tree.size(), 0, Visitor{stack, fits, add, tree, known});
  return within.empty() ? all : within;
}

bool GrammarText::Add(int32_t id) {
  const std::string_view bytes = grammar_->vocabulary().Text(id, first_);
  if (bytes.empty() || !state_.Advance(bytes)) return false;
  first_ = false;
  return true;
}

}  // namespace tessera::models
