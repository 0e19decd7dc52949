// SPDX-License-Identifier: Apache-2.0
// Dropout as a layer: its key is its path, so that every layer and layout has its own bits.
//
//   Dropout resid_dropout(0.1, Child("resid_dropout"));
//   y = resid_dropout.Forward(x_BTC, context);
//
// Active where the context says training. Under sequence parallelism x is this rank's share of dim
// 1, and drops what the whole would drop there.
#ifndef TESSERA_NN_DROPOUT_H_
#define TESSERA_NN_DROPOUT_H_

#include "nn/module.h"

namespace tessera::nn {

class Dropout : public Module {
 public:
  // Throws Error unless p is in [0, 1).
  Dropout(double p, const Scope& scope);
  std::string_view kind() const override { return "Dropout"; }
  Tensor Forward(const Tensor& x, const ForwardContext& context) const;
  // Of a tensor that every rank has whole, under sequence parallelism too (a pooled [B, C]).
  Tensor ForwardWhole(const Tensor& x, const ForwardContext& context) const;
  // Of this rank's share of the last dim of a whole sequence: features [begin, ...) of `features`.
  Tensor ForwardFeatures(const Tensor& x, int64_t begin, int64_t features,
                         const ForwardContext& context) const;
  double p() const { return p_; }
  void set_dropout(double p) override;

 private:
  double p_ = 0;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_DROPOUT_H_
