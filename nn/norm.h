// SPDX-License-Identifier: Apache-2.0
// Normalisation layers.
//
//   LayerNorm ln_1({.width = C, .eps = 1e-5}, Child("ln_1"));
//   const NormResult r = ln_2.ForwardResidual(x, branch);    // r.sum = x + branch
//   const NormResult s = ln_1.ForwardResidual(x, Tensor());  // s.sum is x (ops/norm/norm.h)
//   std::unique_ptr<Norm> norm = MakeNorm(NormKind::kRmsNorm, {.width = C}, Child("norm"));
//
// Every rank holds the whole weight and bias. Under sequence parallelism each sees its share of the
// sequence, and the gradients of weight and bias are marked to be summed over the group.
#ifndef TESSERA_NN_NORM_H_
#define TESSERA_NN_NORM_H_

#include <memory>

#include "nn/module.h"
#include "ops/norm/norm.h"

namespace tessera::nn {

struct NormConfig {
  int64_t width = 0;
  double eps = 1e-5;
  bool bias = true;  // LayerNorm only
  // RmsNorm only: the weight is held less 1, and begins at 0 (Gemma).
  bool zero_centered = false;
  // What it is given are this rank's heads, so that gradients are summed over the group.
  bool on_heads = false;
  // What it is given is whole under sequence parallelism too (a pooled [B, C]).
  bool on_whole = false;
};

// What ForwardResidual returns: ops/norm's ResidualNorm, as Module::Call wants it.
struct NormResult : ResidualNorm {
  std::vector<Tensor> tensors() const { return {sum, normed}; }
};

class Norm : public Module {
 public:
  using Module::Module;
  virtual Tensor Forward(const Tensor& x) const = 0;
  virtual NormResult ForwardResidual(const Tensor& x, const Tensor& residual) const = 0;
};

enum class NormKind { kLayerNorm, kRmsNorm };
std::unique_ptr<Norm> MakeNorm(NormKind kind, const NormConfig& config, const Scope& scope);

class LayerNorm : public Norm {
 public:
  LayerNorm(const NormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "LayerNorm"; }
  Tensor Forward(const Tensor& x) const override;
  NormResult ForwardResidual(const Tensor& x, const Tensor& residual) const override;

 private:
  const NormConfig config_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

// x / sqrt(mean(x^2) + eps), times the weight, plus 1 where it is zero-centred (Zhang and Sennrich
// 2019).
class RmsNorm : public Norm {
 public:
  RmsNorm(const NormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "RmsNorm"; }
  Tensor Forward(const Tensor& x) const override;
  NormResult ForwardResidual(const Tensor& x, const Tensor& residual) const override;

 private:
  const NormConfig config_;
  const double weight_offset_;
  Parameter& weight_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_NORM_H_
