// SPDX-License-Identifier: Apache-2.0
// A recurrent layer over whole sequences: simple (Elman 1990), LSTM (Hochreiter and Schmidhuber
// 1997) and GRU (Cho et al. 2014), whose reset gate works on the product as cuDNN's and PyTorch's
// does.
//
//   Tensor projected = Linear(x_BTC, weight_ih, bias_ih, LinearLayout::kOutIn);    // all steps
//   RecurrentStates y = Recurrent(RecurrentCell::kLstm, {projected, weight_hh, bias_hh});
//
// The formulas stand beside RecurrentCell (ops/recurrent/recurrent_rows.h); gates lie in PyTorch's
// order: i, f, g, o of an LSTM and r, z, n of a GRU. One node of the tape: the product with W_ih
// over all times is the caller's, and its gradient one product, too. Floating dtypes; of half
// precision gates are computed in float32; the product with W_hh, the states and what is kept for
// the gradient are rounded, but an LSTM's cell states stay float32. Gradients flow to all but the
// lengths. Shapes that do not fit throw Error.
#ifndef TESSERA_OPS_RECURRENT_RECURRENT_H_
#define TESSERA_OPS_RECURRENT_RECURRENT_H_

#include "core/tensor.h"
#include "ops/recurrent/recurrent_rows.h"

namespace tessera {

struct RecurrentInputs {
  Tensor projected;  // [B, T, gates H]: x W_ih^T + b_ih; gates: 4 of kLstm, 3 of kGru, else 1
  Tensor weight;     // W_hh [gates H, H]
  Tensor bias = {};  // b_hh [gates H]; undefined: none

  // States before the first step [B, H]; undefined: zeros.
  Tensor hidden = {};
  Tensor cell = {};  // kLstm
  // int64 [B] in [0, T]: how many steps of each sequence are its own. Those behind give outputs of
  // zero and leave the states as they are, so that padding changes nothing (what PyTorch packs
  // sequences for). Undefined: all.
  Tensor lengths = {};

  // Begin with the last step (of a sequence's own) and end with the first; outputs stand where
  // their inputs do.
  bool reverse = false;
};

struct RecurrentStates {
  Tensor output;  // [B, T, H]: the hidden states
  Tensor hidden;  // [B, H]: the last one of each sequence
  Tensor cell;    // [B, H] of kLstm: likewise, float32 (float64 for float64); else undefined
};

RecurrentStates Recurrent(RecurrentCell cell, const RecurrentInputs& inputs);

}  // namespace tessera

#endif  // TESSERA_OPS_RECURRENT_RECURRENT_H_
