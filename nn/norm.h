// Normalisation layers.
//
//   LayerNorm ln_1({.width = C, .eps = 1e-5}, Child("ln_1"));
//   auto [sum, normed] = ln_2.ForwardResidual(x, branch);    // sum = x + branch
//
// Every rank holds the whole weight and bias. Under sequence parallelism each sees its share of the
// sequence, and the gradients of weight and bias are marked to be summed over the group.
#ifndef TESSERA_NN_NORM_H_
#define TESSERA_NN_NORM_H_

#include "nn/module.h"
#include "ops/norm/norm.h"

namespace tessera::nn {

struct NormConfig {
  int64_t width = 0;
  double eps = 1e-5;
  bool bias = true;  // LayerNorm only
};

// What ForwardResidual returns: ops/norm's ResidualNorm, as Module::Call wants it.
struct NormResult : ResidualNorm {
  std::vector<Tensor> tensors() const { return {sum, normed}; }
};

class LayerNorm : public Module {
 public:
  LayerNorm(const NormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "LayerNorm"; }
  Tensor Forward(const Tensor& x) const;
  NormResult ForwardResidual(const Tensor& x, const Tensor& residual) const;

 private:
  const NormConfig config_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

class RmsNorm : public Module {
 public:
  RmsNorm(const NormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "RmsNorm"; }
  Tensor Forward(const Tensor& x) const;
  NormResult ForwardResidual(const Tensor& x, const Tensor& residual) const;

 private:
  const NormConfig config_;
  Parameter& weight_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_NORM_H_
