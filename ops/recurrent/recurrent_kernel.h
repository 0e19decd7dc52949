// SPDX-License-Identifier: Apache-2.0
// What the kernels of a recurrent step are given: one time of sequences [batch, steps, ...], which
// are contiguous. Pointers are those of this time in the first sequence; what is not a sequence is
// [batch, ...]. Wide is AccumulateDType(dtype).
#ifndef TESSERA_OPS_RECURRENT_RECURRENT_KERNEL_H_
#define TESSERA_OPS_RECURRENT_RECURRENT_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/recurrent/recurrent_rows.h"

namespace tessera {

// Rows that lie `stride` elements apart, where they may be of a sequence or of a first state.
struct StateRows {
  const void* data = nullptr;
  int64_t stride = 0;
};

// One step of all rows.
struct RecurrentStepArgs {
  RecurrentCell cell;
  DType dtype;
  int64_t batch;
  int64_t steps;
  int64_t hidden;
  int64_t gates;  // GatesOf(cell)
  int64_t time;
  const int64_t* lengths;  // [batch], or nullptr; rows that have ended keep their states
  const void* projected;   // sequence of gates
  const void* recurrent;   // [batch, gates]
  StateRows h_before;
  StateRows c_before;  // Wide; kLstm
  void* h;             // sequence, "="
  void* c;             // sequence, Wide, "="; kLstm
  void* output;        // sequence, "=": h, 0 where a row has ended; nullptr: is not needed
  void* kept;          // sequence, "="; nullptr: is not needed
};

// The gradients of one step.
struct RecurrentStepGradArgs {
  RecurrentCell cell;
  DType dtype;
  int64_t batch;
  int64_t steps;
  int64_t hidden;
  int64_t gates;  // GatesOf(cell)
  int64_t time;
  const int64_t* lengths;
  const void* kept;  // sequences, as above
  const void* h;
  const void* c;
  StateRows h_before;
  StateRows c_before;
  const void* d_output;  // sequence, or nullptr
  void* dh;              // [batch, hidden], Wide: as RecurrentGradRow has it
  void* dc;              // likewise
  void* d_projected;     // sequence, "="; 0 where a row has ended
  void* d_recurrent;     // likewise; kGru only
};

// Both kinds of gates are read and the states written.
inline KernelWork WorkOf(const RecurrentStepArgs& args) {
  return {.bytes = BytesOfElements(args.dtype,
                                   args.batch * args.hidden * (2 * args.gates / args.hidden + 3))};
}
inline KernelWork WorkOf(const RecurrentStepGradArgs& args) {
  return {.bytes = BytesOfElements(args.dtype,
                                   args.batch * args.hidden * (2 * args.gates / args.hidden + 4))};
}

inline KernelTable<RecurrentStepArgs> recurrent_kernel{"recurrent"};
inline KernelTable<RecurrentStepGradArgs> recurrent_grad_kernel{"recurrent gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_RECURRENT_RECURRENT_KERNEL_H_
