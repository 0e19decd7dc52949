#include "autograd/saved_tensor.h"

#include "autograd/autograd.h"

namespace tessera {
namespace {

thread_local SavedTensorHooks* current_hooks = nullptr;

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorHooks* hooks) : previous_(current_hooks) {
  current_hooks = hooks;
}
SavedTensorScope::~SavedTensorScope() { current_hooks = previous_; }

SavedTensor::SavedTensor(const Tensor& t) {
  if (!t.defined()) return;
  // Without its record: a node that kept its own output's record would keep itself alive.
  const Tensor detached = t.Detach();
  if (current_hooks != nullptr && !IsLeaf(t)) {
    packed_ = current_hooks->Pack(detached);
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
