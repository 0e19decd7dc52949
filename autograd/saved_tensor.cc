// SPDX-License-Identifier: Apache-2.0
#include "autograd/saved_tensor.h"

#include "autograd/autograd.h"

namespace tessera {

SavedTensor::SavedTensor(const Tensor& t) {
  if (!t.defined()) return;
  // Without its record: a node that kept its own output's record would keep itself alive.
  const Tensor detached = t.Detach();
  SavedTensorHooks* const hooks = ExecutionContext::Current().saved_tensors;
  if (hooks != nullptr && !IsLeaf(t)) {
    packed_ = hooks->Pack(detached);
    if (packed_ != nullptr) return;
  }
  tensor_ = detached;
  version_ = t.storage()->version();
}

Tensor SavedTensor::Unpack() const {
  if (packed_ != nullptr) return packed_->Unpack();
  TESSERA_CHECK(!tensor_.defined() || tensor_.storage()->version() == version_, "backward",
                "a tensor that the gradient needs, ", tensor_,
                ", was changed in place after the forward pass used it (version ",
                tensor_.storage()->version(), ", expected ", version_, ")");
  return tensor_;
}

}  // namespace tessera
