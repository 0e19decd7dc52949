// SPDX-License-Identifier: Apache-2.0
// Relative position bias in buckets (Raffel et al. 2020, "T5"): what attention adds to the score of
// a query and a key, learnt per head and per distance.
//
//   RelativePositionBias bias({.num_buckets = 32, .max_distance = 128, .num_heads = H}, scope);
//   Tensor scores_1HTS = bias.Forward(T, S);          // this rank's heads
//
// Half of the buckets are single distances, the others grow logarithmically up to max_distance;
// beyond it there is one. `bidirectional` gives keys behind the query buckets of their own,
// otherwise they count as distance 0. The table is split by heads over the tensor-parallel group.
#ifndef TESSERA_NN_RELATIVE_POSITION_H_
#define TESSERA_NN_RELATIVE_POSITION_H_

#include <cstdint>
#include <vector>

#include "nn/module.h"
#include "ops/collective/sequence_runs.h"

namespace tessera::nn {

struct RelativePositionBiasConfig {
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  int64_t num_heads = 0;
  bool bidirectional = true;
  Init init = Init::Normal(0.02);
};

// The bucket of key position minus query position, in [0, num_buckets).
int64_t RelativePositionBucket(int64_t relative_position, const RelativePositionBiasConfig& config);

class RelativePositionBias : public Module {
 public:
  // The parameter is `weight` [num_buckets, num_heads].
  RelativePositionBias(const RelativePositionBiasConfig& config, const Scope& scope);
  std::string_view kind() const override { return "RelativePositionBias"; }
  bool looks_up() const override { return true; }

  // Queries at 0 ... queries-1, keys at 0 ... keys-1: [1, local heads, queries, keys].
  Tensor Forward(int64_t queries, int64_t keys) const;
  // Rows of a batch that are at different places: row b's queries begin at begins[b]:
  // [B, local heads, queries, keys].
  Tensor Forward(const std::vector<int64_t>& begins, int64_t queries, int64_t keys) const;

  // Queries of several runs of a sequence, one behind the other: [1, local heads, queries, keys].
  Tensor Forward(const std::vector<SequenceRun>& queries, int64_t keys) const;

  // For one of several layers that use the table: `values` (what Forward(queries, keys) gave, off
  // the tape) in the same memory, with its gradient flowing to `use`, a parameter tied to the
  // table. A layer's gradient is then the same on every cut into pipeline stages.
  Tensor ForLayer(const Parameter& use, const Tensor& values,
                  const std::vector<SequenceRun>& queries, int64_t keys) const;
  Parameter& weight() { return weight_; }
  const Parameter& weight() const { return weight_; }

 private:
  // At the places of the queries, of each row of a batch: [rows, local heads, queries, keys].
  using Rows = std::vector<std::vector<SequenceRun>>;
  Tensor LookUp(const Tensor& table, const Rows& rows, int64_t keys) const;

  const RelativePositionBiasConfig config_;
  Parameter& weight_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_RELATIVE_POSITION_H_
