// SPDX-License-Identifier: Apache-2.0
// Low-rank terms beside the weights of linear layers and of embeddings: LoRA (Hu et al. 2021,
// "LoRA: Low-Rank Adaptation of Large Language Models"), rank-stabilised LoRA (Kalajdzievski 2023)
// and DoRA (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation").
//
//   if (layer.term_layout()) AdaptedWeight::Of(layer).AddTerm(0, {.rank = 8, .scale = 16.0 / 8});
//   y = linear.Forward(x, context);                  // x W^T + b + scale (x A^T) B^T
//
// With `magnitude`, y = b + m (x W^T + scale (x A^T) B^T) / ||W + scale B A||, the norm that of
// each output's row, which has no gradient. Parameters stand beside the layer's own, by PEFT's
// names: `lora_A.weight` [rank, in], `lora_B.weight` [out, rank], `lora_magnitude_vector` [out]. A
// begins uniform in +-1/sqrt(in), B as zeros, m as the rows' norms, so that nothing changes at
// first. With `subtract_start`, A and B may begin as anything (a part of the weight, say): what
// counts is scale (B A - B_0 A_0), whose first values stay beside them, untrained, as
// `lora_A_start.weight` and `lora_B_start.weight`.
//
// The term of a table [V, out] is that of a layer whose inputs are one-hot: an id's row is
// W[id] + scale B A[:, id]. Its matrices are `lora_embedding_A` [rank, V], which begins as zeros,
// and `lora_embedding_B` [out, rank]. It drops nothing out.
//
// Any layer whose weight is a matrix takes a term, whatever its split over a tensor-parallel group:
// B (and m) is cut as its outputs, A as its inputs, and what is whole has its partial gradients
// summed over the group. One weight may carry the terms of several adapters, of which a pass names
// one (ForwardContext::adapter).
#ifndef TESSERA_NN_LOW_RANK_H_
#define TESSERA_NN_LOW_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/weight.h"

namespace tessera::nn {

struct LowRankConfig {
  int64_t rank = 8;
  double scale = 1.0;      // alpha / rank, or alpha / sqrt(rank) where it is rank-stabilised
  double dropout = 0.0;    // of what goes into A
  bool magnitude = false;  // DoRA
  Init a_init = {};        // kZeros: uniform in +-1/sqrt(in); zeros beside a table
  Init b_init = {};
  bool subtract_start = false;  // not with `magnitude`
};

// A weight with its term in it, in the weight's dtype; computed in float32 at least. `magnitude` is
// undefined where there is none; a [rank, in], b [out, rank].
Tensor MergedWeight(const Tensor& weight, LinearLayout layout, const Tensor& a, const Tensor& b,
                    double scale, const Tensor& magnitude = {});

// What the parameters of a term are called, behind the layer's path; of one beside a table that is
// looked up, and of adapter number `adapter`.
struct LowRankNames {
  LowRankNames(bool table, int adapter);
  std::string a;
  std::string b;
  std::string magnitude;
};

// One adapter's term beside one weight; made by AdaptedWeight::AddTerm.
class LowRankTerm : public Module {
 public:
  // `layer` has `weight`.
  LowRankTerm(const LowRankConfig& config, Module& layer, const Parameter& weight, int adapter);

  // x [..., in] through the weight (whose form is `base`, or nullptr) and this term.
  Tensor Forward(const Parameter& weight, const WeightForm* base, const Tensor& x,
                 const Tensor& bias, const ForwardContext& context) const;
  // Rows of a table (whose form is `base`, or nullptr) and this term, for ids of any shape.
  Tensor LookUp(const Parameter& table, const WeightForm* base, const Tensor& ids,
                const EmbeddingOptions& options, const ForwardContext& context) const;
  // Once the weight has its values, which are there, as this term's are: the magnitudes are its
  // rows' norms. Not on meta. Collective where inputs are split.
  void Begin(const Parameter& weight);
  // Of subtract_start: whole [rank, in] and [out, rank], on the CPU, that A and B begin with.
  void StartWith(const Tensor& a, const Tensor& b);
  // What one of the own parameters began with; nullptr: nothing that counts.
  Parameter* StartOf(const Parameter& own) const;
  const LowRankConfig& config() const { return config_; }
  LinearLayout layout() const { return layout_; }

 private:
  LowRankTerm(const LowRankConfig& config, Module& layer, const Parameter& weight,
              const LowRankNames& names, const std::string& suffix);
  Tensor Dropped(const Tensor& x, const Parameter& weight, const ForwardContext& context) const;
  void Write(Parameter& p, const std::function<void()>& write) const;
  // What DoRA multiplies outputs by.
  Tensor Gain(const Parameter& weight) const;
  Tensor Product(const Parameter& weight, const WeightForm* base, const Tensor& x,
                 const Tensor& bias, const ForwardContext& context) const;
  // ||W + scale B A|| of each output.
  Tensor RowNorms(const Parameter& weight) const;

  const LowRankConfig config_;
  const LinearLayout layout_;
  const std::string noise_path_;
  const bool splits_inputs_;
  Parameter& a_;
  Parameter& b_;
  Parameter* magnitude_ = nullptr;
  Parameter* a_start_ = nullptr;
  Parameter* b_start_ = nullptr;
};

// A weight with terms; the form of its parameter.
class AdaptedWeight : public WeightForm {
 public:
  // That of the weight of `layer`, which takes terms (Module::term_layout): it becomes its form,
  // unless it is that already. What the form was before continues below.
  static AdaptedWeight& Of(Module& layer);

  // That of adapter number `adapter`, which is none's yet.
  LowRankTerm& AddTerm(int adapter, const LowRankConfig& config);
  LowRankTerm* term(int adapter);
  // nullptr: this adapter leaves the weight alone.
  const LowRankTerm* term(int adapter) const;

  Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x, const Tensor& bias,
                  const ForwardContext& context) const override;
  Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
                const ForwardContext& context) const override;
  bool sums_in_trees() const override { return base_ == nullptr; }
  const AdaptedWeight* adapted() const override { return this; }

 private:
  AdaptedWeight(Module& layer, Parameter& weight)
      : layer_(layer), weight_(weight), base_(weight.form) {}

  Module& layer_;
  Parameter& weight_;
  const std::shared_ptr<const WeightForm> base_;  // nullptr: dense
  std::vector<std::unique_ptr<LowRankTerm>> terms_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_LOW_RANK_H_
