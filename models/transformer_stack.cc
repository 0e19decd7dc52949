#include "models/transformer_stack.h"

#include "autograd/recompute.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {

Bundle RunTransformerBlock(nn::TransformerBlock& block, const nn::AttentionMasks& masks, Bundle in,
                           const RunOptions& options, bool recompute, int layer) {
  const nn::ForwardContext context = ContextFor(in, options);
  const auto run = [&block, masks, context, cache = options.cache,
                    layer](const std::vector<Tensor>& x) {
    return block.Forward(x[0], masks, context, cache, layer);
  };
  const Tensor x_BTC = in.at("hidden");
  in.set("hidden", recompute ? Recompute(run, {x_BTC}) : run({x_BTC}));
  return in;
}

Bundle RunTransformerBlock(nn::TransformerBlock& block, Bundle in, const RunOptions& options,
                           bool recompute) {
  nn::AttentionMasks masks;
  if (in.has("attention_mask")) {
    masks.key_padding = Compare(in.at("attention_mask"), 0.0, Comparison::kNotEqual);
  }
  return RunTransformerBlock(block, masks, std::move(in), options, recompute);
}

Tensor CountingPositions(int64_t rows, int64_t tokens, const Device& device) {
  return Arange(tokens, device).AsStrided({rows, tokens}, {0, 1}, 0).ContiguousCopy();
}

Tensor WholeSequence(const Tensor& hidden, const nn::BuildContext& build,
                     const nn::ForwardContext& context) {
  if (!build.sequence_parallel) return hidden;
  return GatherFromGroup(hidden, 1, context.sequence_length, build.tensor_parallel);
}

}  // namespace tessera::models
