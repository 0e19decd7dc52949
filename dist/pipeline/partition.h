// SPDX-License-Identifier: Apache-2.0
// Cuts a model's blocks into the chunks of a pipeline.
//
//   const BlockBuilder build = BlocksOf(config_json, context);
//   TESSERA_ASSIGN_OR_RETURN(std::vector<double> costs, ComputedBlockCosts(build, tokens));
//   TESSERA_ASSIGN_OR_RETURN(std::vector<int> cuts, CutBlocks(costs, stages * chunks_per_rank));
//   // chunk c has the blocks [cuts[c], cuts[c + 1])
//
// Costs of blocks (the embedding and the head are blocks too) are computed from shapes or measured.
// The cut makes the most expensive chunk as cheap as can be, and among such cuts the chunks as
// equal as can be; both exactly, by dynamic programming.
#ifndef TESSERA_DIST_PIPELINE_PARTITION_H_
#define TESSERA_DIST_PIPELINE_PARTITION_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::dist {

// Boundaries 0 = b[0] < b[1] < ... < b[chunks] = blocks. InvalidArgument when there are more chunks
// than blocks ("pp 8 x 2 chunks need 16 blocks, the model has 14"), and for costs that are negative
// or not finite.
StatusOr<std::vector<int>> CutBlocks(const std::vector<double>& costs, int chunks);

// Equal numbers of blocks, where no costs are known.
StatusOr<std::vector<int>> CutEvenly(int blocks, int chunks);

// Builds the part of a model that has the blocks [first, end), on the given device.
using BlockBuilder =
    std::function<StatusOr<std::unique_ptr<models::Model>>(int first, int end, Device device)>;
// Of a registered family.
BlockBuilder BlocksOf(const nlohmann::json& config, const nn::BuildContext& context);

// How many places a model computes for what a run counts as a token: of a picture its patches and
// the class token, else 1.
int64_t PlacesOfToken(const models::Model& model);

// Multiply-adds of every block for one token, about: each block is built on `meta` and the elements
// of its parameters are counted, of those that are looked up (embeddings, tables of relative
// positions) one row. An attention to `tokens` keys, or to those in its window, adds 2 * keys *
// heads * head size; `tokens` of 0 leaves it out. Of a model of pictures, for one picture. No
// weights are allocated.
StatusOr<std::vector<double>> ComputedBlockCosts(const BlockBuilder& build, int64_t tokens);

// How long each block takes.
struct BlockTimes {
  std::vector<double> forward;      // seconds
  std::vector<double> input_grad;   // of the gradients of activations
  std::vector<double> weight_grad;  // of those of weights
  // Of all three: what CutBlocks takes.
  std::vector<double> Total() const;
  // Sums over the blocks of each chunk.
  BlockTimes OfChunks(const std::vector<int>& cuts) const;
};

// Runs one micro-batch through every block, one block in memory at a time, `repeats` times after
// one that is not counted, and takes the fastest. `inputs` as for Run, with `labels` or `targets`.
StatusOr<BlockTimes> MeasureBlocks(const BlockBuilder& build, const models::Bundle& inputs,
                                   const models::RunOptions& options, int repeats = 2);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_PARTITION_H_
