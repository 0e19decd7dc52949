// SPDX-License-Identifier: Apache-2.0
#include "models/transformer_stack.h"

#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {

Bundle RunTransformerBlock(nn::TransformerBlock& block, const nn::AttentionMasks& masks, Bundle in,
                           const RunOptions& options, int layer) {
  in.set(keys::kHidden,
         block.Forward(in.at(keys::kHidden), masks, ContextFor(in, options), options.cache, layer));
  return in;
}

nn::AttentionMasks MasksOf(const Bundle& in) {
  nn::AttentionMasks masks;
  masks.document = in.get(keys::kDocumentIds);
  if (in.has(keys::kAttentionMask)) {
    masks.key_padding = Compare(in.at(keys::kAttentionMask), 0.0, Comparison::kNotEqual);
  }
  return masks;
}

Bundle RunTransformerBlock(nn::TransformerBlock& block, Bundle in, const RunOptions& options,
                           int layer) {
  const nn::AttentionMasks masks = MasksOf(in);
  return RunTransformerBlock(block, masks, std::move(in), options, layer);
}

BlockKeys TransformerBlockKeys(const KeyNames& masks) {
  return {
      .takes = {keys::kHidden, keys::kPositionIds}, .may_take = masks, .gives = {keys::kHidden}};
}

Tensor CountingPositions(int64_t rows, int64_t tokens, const Device& device) {
  return Arange(tokens, device).AsStrided({rows, tokens}, {0, 1}, 0).ContiguousCopy();
}

Tensor WholeSequence(const Tensor& hidden, const nn::BuildContext& build,
                     const nn::ForwardContext& context) {
  if (!build.sequence_parallel) return hidden;
  return GatherFromGroup(hidden, 1, context.sequence_length, build.tensor_parallel);
}

Tensor FirstToken(const Tensor& hidden) { return Contiguous(Select(hidden, 1, 0)); }

}  // namespace tessera::models
