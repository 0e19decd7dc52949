// SPDX-License-Identifier: Apache-2.0
// Trained keys and values before those of a row's tokens: prefix tuning (Li & Liang 2021), as
// P-tuning v2 (Liu et al. 2022) and PEFT have it.
//
//   const PrefixHeads heads = attention.prefix_heads();
//   attention.SetPrefix(0, std::make_shared<KeyValuePrefix>(
//       PrefixConfig{.tokens = 16, .heads = heads},
//       Scope{attention.path() + ".prefix", &attention, build}));
//   y_BTC = attention.Forward(h_BTC, masks, context);         // queries see 16 keys more
//
// Every query sees the prefix, whatever its document, but for what a sliding window has passed;
// neither norms of heads nor rotary positions touch it. Masks and positions that a layer is given
// know nothing of it.
//
// Parameters, n tokens and F = key/value heads * head size: `key` and `value` [n, F], which begin
// as Normal(1), as torch's embeddings do. With a PrefixEncoder (PEFT's `prefix_projection`) keys
// are tanh(E W^T + b) K^T + c instead: `key.weight` [F, hidden], `key.bias` [F], likewise
// `value.weight` and `value.bias`. They are split as the layer's key/value heads.
#ifndef TESSERA_NN_PREFIX_H_
#define TESSERA_NN_PREFIX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/key_value_cache.h"
#include "nn/module.h"

namespace tessera::nn {

// Key/value heads of a layer, as prefixes are cut by them.
struct PrefixHeads {
  int64_t count = 0;  // of all ranks
  int64_t head_dim = 0;
  Share share = {};    // this rank's
  bool split = false;  // false: every rank holds all of them and sees a part of their gradients
};

// What the prefixes of all layers come from where they are projected: tanh(E W^T + b), [n, hidden].
// `embedding.weight` [n, F], `transform.0.weight` [hidden, F], `transform.0.bias` [hidden]. A
// model's first layer uses these, the others have uses of their own, tied to them.
class PrefixEncoder : public Module {
 public:
  PrefixEncoder(int64_t tokens, int64_t features, int64_t hidden, const Scope& scope);

  Tensor Forward() const;
  Parameter& embedding() const { return embedding_; }
  Parameter& weight() const { return weight_; }
  Parameter& bias() const { return bias_; }
  int64_t hidden() const { return bias_.placement.global_shape()[0]; }

 private:
  Parameter& embedding_;
  Parameter& weight_;
  Parameter& bias_;
};

// The same of any numbers.
Tensor EncodedPrefix(const Tensor& embedding, const Tensor& weight, const Tensor& bias);

struct PrefixConfig {
  int64_t tokens = 0;
  PrefixHeads heads = {};
  // Rotary positions of tokens are those behind the prefix; false: as without it.
  bool takes_positions = true;
  std::shared_ptr<PrefixEncoder> encoder = nullptr;
  bool first_layer = false;  // of the whole model: uses the encoder itself
};

class KeyValuePrefix : public Module {
 public:
  KeyValuePrefix(const PrefixConfig& config, const Scope& scope);
  // Of another layer, whose numbers these are: parameters are tied.
  KeyValuePrefix(std::shared_ptr<KeyValuePrefix> source, const Scope& scope);

  struct KeysAndValues {
    Tensor k, v;  // [1, n, this rank's features]
    std::vector<Tensor> tensors() const { return {k, v}; }
  };
  KeysAndValues Forward() const;

  int64_t tokens() const { return config_.tokens; }
  bool takes_positions() const { return config_.takes_positions; }

 private:
  // One of keys and values: its numbers, or what makes them of the encoder's.
  struct Half {
    Parameter* numbers = nullptr;
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;
  };
  Half MakeHalf(const std::string& name, const Half* source);
  void UseEncoder();
  // What the encoder gives; undefined: there is none.
  Tensor Encoded() const;
  Tensor HalfOf(const Half& half, const Tensor& encoded) const;

  const PrefixConfig config_;
  const std::shared_ptr<KeyValuePrefix> source_;  // null: none; it outlives the uses of its numbers
  Half key_;
  Half value_;
  // Uses of the encoder's parameters; null: there is none, or it is used itself.
  Parameter* embedding_ = nullptr;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

// Where the queries of a step's rows begin: behind what the cache has or, in rows that begin with
// this step, behind a prefix.
std::vector<int64_t> QueryBegins(const KeyValueCache& cache, int64_t prefix_tokens);

// Keys (or values) [B, G, T, D] of a step behind those of the prefix [1, G, n, D], in rows that
// begin with it (some; without a cache all): [B, G, n + T, D]. Other rows are filled up behind.
Tensor BehindPrefix(const Tensor& prefix, const Tensor& x, const KeyValueCache* cache);

}  // namespace tessera::nn

#endif  // TESSERA_NN_PREFIX_H_
