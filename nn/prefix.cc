// SPDX-License-Identifier: Apache-2.0
#include "nn/prefix.h"

#include <algorithm>
#include <cmath>

#include "nn/linear.h"
#include "nn/weight.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera::nn {

// B batch, G key/value heads, n the prefix's tokens, T tokens, D head size, F features.

namespace {

// As torch.nn.Linear begins.
Init LinearInit(int64_t inputs) {
  return Init::Uniform(1.0 / std::sqrt(static_cast<double>(inputs)));
}

// Features along `dim` of `shape`, cut as the heads.
Placement PlacementOf(const PrefixHeads& heads, const Shape& shape, int dim) {
  if (!heads.split) return Placement::Whole(shape);
  return Placement::Split(
      shape, dim,
      {{shape[dim], heads.share.begin * heads.head_dim, heads.share.count * heads.head_dim}});
}

}  // namespace

PrefixEncoder::PrefixEncoder(int64_t tokens, int64_t features, int64_t hidden, const Scope& scope)
    : Module(scope),
      embedding_(
          AddParameter("embedding.weight", Placement::Whole({tokens, features}), Init::Normal(1))),
      weight_(AddParameter("transform.0.weight", Placement::Whole({hidden, features}),
                           LinearInit(features))),
      bias_(AddParameter("transform.0.bias", Placement::Whole({hidden}), LinearInit(features))) {
  embedding_.table = true;
}

Tensor PrefixEncoder::Forward() const {
  return Call(embedding_.tensor,
              [&] { return EncodedPrefix(embedding_.tensor, weight_.tensor, bias_.tensor); });
}

Tensor EncodedPrefix(const Tensor& embedding, const Tensor& weight, const Tensor& bias) {
  return Tanh(Linear(embedding, weight, bias, LinearLayout::kOutIn));
}

KeyValuePrefix::KeyValuePrefix(const PrefixConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      key_(MakeHalf("key", nullptr)),
      value_(MakeHalf("value", nullptr)) {
  UseEncoder();
}

KeyValuePrefix::KeyValuePrefix(std::shared_ptr<KeyValuePrefix> source, const Scope& scope)
    : Module(scope),
      config_(source->config_),
      source_(std::move(source)),
      key_(MakeHalf("key", &source_->key_)),
      value_(MakeHalf("value", &source_->value_)) {
  UseEncoder();
}

KeyValuePrefix::Half KeyValuePrefix::MakeHalf(const std::string& name, const Half* source) {
  const auto tied = [&](const std::string& of, Parameter* p) {
    return p == nullptr ? nullptr : &AddTiedParameter(of, *p);
  };
  if (source != nullptr) {
    return {.numbers = tied(name, source->numbers),
            .weight = tied(name + ".weight", source->weight),
            .bias = tied(name + ".bias", source->bias)};
  }
  const PrefixHeads& heads = config_.heads;
  const int64_t features = heads.count * heads.head_dim;
  Half half;
  if (config_.encoder == nullptr) {
    half.numbers =
        &AddParameter(name, PlacementOf(heads, {config_.tokens, features}, 1), Init::Normal(1));
    half.numbers->table = true;
    return half;
  }
  const int64_t hidden = config_.encoder->hidden();
  half.weight = &AddParameter(name + ".weight", PlacementOf(heads, {features, hidden}, 0),
                              LinearInit(hidden));
  // Of heads that each rank has whole, the ranks' terms come together behind the product.
  const Group& group = build().tensor_parallel;
  if (heads.split || group == nullptr || group->size() == 1) {
    half.weight->trees.outputs =
        TreeOver({{.features = features, .unit = heads.head_dim}}, build());
  }
  half.bias = &AddParameter(name + ".bias", PlacementOf(heads, {features}, 0), LinearInit(hidden));
  return half;
}

void KeyValuePrefix::UseEncoder() {
  if (config_.encoder == nullptr || (config_.first_layer && source_ == nullptr)) return;
  embedding_ = &AddTiedParameter("embedding.weight", config_.encoder->embedding());
  weight_ = &AddTiedParameter("transform.0.weight", config_.encoder->weight());
  bias_ = &AddTiedParameter("transform.0.bias", config_.encoder->bias());
}

Tensor KeyValuePrefix::HalfOf(const Half& half, const Tensor& encoded) const {
  const Tensor x_nF = half.numbers != nullptr
                          ? half.numbers->tensor
                          : Linear(encoded, half.weight->tensor, half.bias->tensor,
                                   LinearLayout::kOutIn, half.weight->trees);
  const bool partial = !config_.heads.split && !SumsInTrees(build());  // else attention sums
  return Unsqueeze(partial ? CopyToGroup(x_nF, build().tensor_parallel) : x_nF, 0);
}

Tensor KeyValuePrefix::Encoded() const {
  if (config_.encoder == nullptr) return {};
  const Tensor encoded = embedding_ == nullptr
                             ? config_.encoder->Forward()
                             : EncodedPrefix(embedding_->tensor, weight_->tensor, bias_->tensor);
  // Where heads are split, each rank's give a part of its gradient.
  return config_.heads.split && !SumsInTrees(build())
             ? CopyToGroup(encoded, build().tensor_parallel)
             : encoded;
}

KeyValuePrefix::KeysAndValues KeyValuePrefix::Forward() const {
  const Parameter& first = key_.numbers != nullptr ? *key_.numbers : *key_.weight;
  return Call(first.tensor, [&]() -> KeysAndValues {
    const Tensor encoded = Encoded();
    return {HalfOf(key_, encoded), HalfOf(value_, encoded)};
  });
}

std::vector<int64_t> QueryBegins(const KeyValueCache& cache, int64_t prefix_tokens) {
  std::vector<int64_t> begins = cache.StepBegins();
  std::replace(begins.begin(), begins.end(), int64_t{0}, prefix_tokens);
  return begins;
}

Tensor BehindPrefix(const Tensor& prefix_1GnD, const Tensor& x_BGTD, const KeyValueCache* cache) {
  const int64_t rows = x_BGTD.size(0);
  Shape shape = prefix_1GnD.shape();
  shape[0] = rows;
  const Tensor prefix_BGnD = BroadcastTo(Cast(prefix_1GnD, x_BGTD.dtype()), shape);
  const auto begins = [&](int64_t b) {
    return cache == nullptr || cache->StepBegins()[static_cast<size_t>(b)] == 0;
  };
  int64_t fresh = 0;
  for (int64_t b = 0; b < rows; ++b) fresh += begins(b);
  if (fresh == rows) return Cat({prefix_BGnD, x_BGTD}, 2);
  std::vector<Tensor> all;
  for (int64_t b = 0; b < rows; ++b) {
    const Tensor x = Slice(x_BGTD, 0, b, 1);
    const Tensor prefix = Slice(prefix_BGnD, 0, b, 1);
    all.push_back(begins(b) ? Cat({prefix, x}, 2) : Cat({x, prefix}, 2));
  }
  return Cat(all, 0);
}

}  // namespace tessera::nn
