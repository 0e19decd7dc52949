// SPDX-License-Identifier: Apache-2.0
// What tensors themselves need of others: the kernels of core/tensor.h, every other one being an
// operation's, and a question to the tape.
#ifndef TESSERA_CORE_RAW_KERNELS_H_
#define TESSERA_CORE_RAW_KERNELS_H_

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernel_table.h"
#include "core/shape.h"

namespace tessera {

class AutogradRecord;

// Whether a record is that of a result, not of a leaf. Set by autograd/; nullptr: there is no tape.
inline bool (*is_result_of_tape)(const AutogradRecord& record) = nullptr;

struct RawView {
  void* data;
  DType dtype;
  Device device;
  Shape shape;
  Shape strides;
};

// What the kernels of Fill, CopyInto, AddInto and counting are given.
struct FillArgs {
  RawView dst;  // written with "="
  double value;
};
struct CopyArgs {
  RawView dst;  // written with "=", cast from src's dtype; either side may be on another device
  RawView src;
};
struct AddArgs {
  RawView dst;  // "+="
  RawView src;
};
struct CountArgs {
  int64_t* dst;  // [n], written with 0, 1, 2, ...
  int64_t n;
};

inline KernelWork WorkOf(const FillArgs& args) {
  return {.bytes = BytesOfElements(args.dst.dtype, args.dst.shape.numel())};
}
inline KernelWork WorkOf(const CopyArgs& args) {
  return {.bytes = BytesOfElements(args.dst.dtype, args.dst.shape.numel()) +
                   BytesOfView(args.src.dtype, args.src.shape, args.src.strides)};
}
inline KernelWork WorkOf(const AddArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dst.dtype, args.dst.shape.numel()) +
                   BytesOfView(args.src.dtype, args.src.shape, args.src.strides)};
}
inline KernelWork WorkOf(const CountArgs& args) {
  return {.bytes = BytesOfElements(DType::kInt64, args.n)};
}

inline KernelTable<FillArgs> fill_kernel{"fill"};
inline KernelTable<CopyArgs> copy_kernel{"copy"};
inline KernelTable<AddArgs> add_kernel{"add_into"};
inline KernelTable<CountArgs> count_kernel{"arange"};

}  // namespace tessera

#endif  // TESSERA_CORE_RAW_KERNELS_H_
