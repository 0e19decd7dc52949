// SPDX-License-Identifier: Apache-2.0
// What stands in a transformer block's place of the feed-forward part: an Mlp, a mixture of experts
// (nn/expert_mlp.h), or a module of the program's own.
//
//   TransformerBlockConfig config = {...};
//   config.feed_forward = [&](const Scope& scope) {
//     return std::make_unique<ExpertMlp>(experts, scope);
//   };
#ifndef TESSERA_NN_FEED_FORWARD_H_
#define TESSERA_NN_FEED_FORWARD_H_

#include <functional>
#include <memory>

#include "nn/module.h"

namespace tessera::nn {

class FeedForward : public Module {
 public:
  using Module::Module;
  // h [B, T, C] to [B, T, C]; under sequence parallelism this rank's share of T.
  virtual Tensor Forward(const Tensor& h, const ForwardContext& context) const = 0;
};

// Makes one under a name of the block's.
using MakeFeedForward = std::function<std::unique_ptr<FeedForward>(const Scope& scope)>;

}  // namespace tessera::nn

#endif  // TESSERA_NN_FEED_FORWARD_H_
