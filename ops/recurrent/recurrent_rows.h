// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent cell for one row of the batch, compiled once per instruction set. Raw
// pointers only; the gates of a row lie one after the other, `hidden` elements each.
#ifndef TESSERA_OPS_RECURRENT_RECURRENT_ROWS_H_
#define TESSERA_OPS_RECURRENT_RECURRENT_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

// With p = x W_ih^T + b_ih and q = h' W_hh^T + b_hh, h' and c' the states before the step:
enum class RecurrentCell : uint8_t {
  kTanh,  // h = tanh(p + q)
  kRelu,  // h = max(p + q, 0)
  kLstm,  // i, f, o = sigmoid(p + q), g = tanh(p + q); c = f c' + i g; h = o tanh(c)
  kGru,   // r, z = sigmoid(p + q), n = tanh(p + r q); h = (1 - z) n + z h'
};

// Parts of a row of gates, and of what is kept of a step for its gradient.
constexpr int64_t GatesOf(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm ? 4 : cell == RecurrentCell::kGru ? 3 : 1;
}
constexpr int64_t KeptOf(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm || cell == RecurrentCell::kGru ? 4 : 0;
}

// A row's step.
struct RecurrentRow {
  RecurrentCell cell;
  RowType type;
  int64_t hidden;
  const void* projected;  // p: i, f, g, o of kLstm; r, z, n of kGru
  const void* recurrent;  // q
  const void* h_before;
  const float* c_before;  // kLstm
  void* h;                // "="
  float* c;               // kLstm, "="
  void* kept;             // for the gradient, "=", or nullptr: i, f, g, o; r, z, n, and q of n
};

// The gradients of a row's step.
struct RecurrentGradRow {
  RecurrentCell cell;
  RowType type;
  int64_t hidden;
  const void* kept;
  const void* h_before;
  const void* h;
  const float* c_before;  // kLstm
  const float* c;         // kLstm
  const void* d_output;   // or nullptr
  float* dh;              // that of h; becomes h' 's, without what comes by q
  float* dc;              // kLstm: that of c; becomes c' 's
  void* d_projected;      // "="
  void* d_recurrent;      // kGru: "="
};

// The functions of one instruction set.
struct RecurrentRows {
  void (*forward)(const RecurrentRow& row);
  void (*backward)(const RecurrentGradRow& row);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const RecurrentRows kRecurrentRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_RECURRENT_RECURRENT_ROWS_H_
