// SPDX-License-Identifier: Apache-2.0
// What models of nn::TransformerBlocks share: running one block on a bundle's `hidden`.
//
//   return RunTransformerBlock(*layers_[i], std::move(in), options, i);
#ifndef TESSERA_MODELS_TRANSFORMER_STACK_H_
#define TESSERA_MODELS_TRANSFORMER_STACK_H_

#include "models/model.h"
#include "nn/transformer_block.h"

namespace tessera::models {

// `hidden` [B, T, C] becomes what the block makes of it under `masks`, with options.cache as layer
// `layer` of it.
Bundle RunTransformerBlock(nn::TransformerBlock& block, const nn::AttentionMasks& masks, Bundle in,
                           const RunOptions& options, int layer = 0);

// The masks of a bundle: keys where `attention_mask` [B, T] is 0 are not seen, nor those of another
// document (`document_ids` [B, T]).
nn::AttentionMasks MasksOf(const Bundle& in);
// The same under the masks of the bundle.
Bundle RunTransformerBlock(nn::TransformerBlock& block, Bundle in, const RunOptions& options,
                           int layer = 0);

// What such a block takes and gives; `masks` are keys of what hides tokens from one another.
BlockKeys TransformerBlockKeys(const KeyNames& masks);

// 0 ... T-1 for each of `rows` rows, int64.
Tensor CountingPositions(int64_t rows, int64_t tokens, const Device& device);

// Hidden states as a whole sequence on every rank, for layers that every rank computes alike.
Tensor WholeSequence(const Tensor& hidden, const nn::BuildContext& build,
                     const nn::ForwardContext& context);

// The first token of every row of [B, T, C]: [B, C].
Tensor FirstToken(const Tensor& hidden);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_TRANSFORMER_STACK_H_
