// SPDX-License-Identifier: Apache-2.0
// What a node keeps of the forward pass.
//
// A `SavedTensor` holds the storage as a handle with the version it had: a tensor changed in place
// since then is refused when the gradient asks for it, while one whose bytes were released and
// brought back (a gathered parameter) is fine. Leaves are kept as handles directly; every other
// saved tensor goes through the innermost `SavedTensorHooks` of the thread, which may drop it and
// compute it again (autograd/recompute.h) or move it elsewhere:
//
//   class OffLoad : public SavedTensorHooks {
//     std::unique_ptr<PackedTensor> Pack(const Tensor& t) override { ... copy to host ... }
//   };
//   OffLoad off_load;
//   SavedTensorScope scope(&off_load);
#ifndef TESSERA_AUTOGRAD_SAVED_TENSOR_H_
#define TESSERA_AUTOGRAD_SAVED_TENSOR_H_

#include <cstdint>
#include <memory>

#include "core/execution_context.h"
#include "core/tensor.h"

namespace tessera {

// What `Pack` made of a tensor.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  virtual Tensor Unpack() = 0;
};

class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  // Returns nullptr to keep the tensor as it is.
  virtual std::unique_ptr<PackedTensor> Pack(const Tensor& t) = 0;
};

// Makes `hooks` the innermost ones of this thread for a scope; nullptr switches hooks off.
using SavedTensorScope = ExecutionModeScope<&ExecutionContext::saved_tensors>;

class SavedTensor {
 public:
  // An undefined tensor may be saved and comes back undefined.
  explicit SavedTensor(const Tensor& t);
  // The tensor, off the tape. Throws Error when it was changed in place since it was saved.
  Tensor Unpack() const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
  std::shared_ptr<PackedTensor> packed_;
};

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_SAVED_TENSOR_H_
