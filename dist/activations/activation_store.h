// SPDX-License-Identifier: Apache-2.0
// Saved activations that are not kept whole where they were computed: off-loaded to host memory, or
// partitioned over ranks that hold the same ones (DeepSpeed's `cpu_checkpointing` and
// `partition_activations`).
//
//   ActivationStore store({.offload = true, .partition = mesh.tp()});
//   {
//     const SavedTensorScope scope(&store);
//     loss = model.Run(batch, options).at("loss");     // with recomputation: the regions' inputs
//   }
//   Backward(loss);
//
// Under recomputation (autograd/recompute.h) only the inputs of the regions are kept, and those go
// through the store; without it, everything that operations save. Tensors of fewer than
// `min_elements` elements, leaves, and integers stay as they are. What comes back has the same
// bits.
//
// Partitioning is for the regions' inputs: 1/N of each stays on each rank of a group whose ranks
// hold equal values (the hidden states of tensor parallelism without sequence parallelism), and is
// gathered when the backward pass asks, a collective in the same order on all of them.
#ifndef TESSERA_DIST_ACTIVATIONS_ACTIVATION_STORE_H_
#define TESSERA_DIST_ACTIVATIONS_ACTIVATION_STORE_H_

#include <cstdint>
#include <memory>

#include "autograd/saved_tensor.h"
#include "core/communicator.h"

namespace tessera::dist {

struct ActivationStoreOptions {
  bool offload = false;                               // to HostMemoryOf the device
  std::shared_ptr<Communicator> partition = nullptr;  // nullptr: whole
  int64_t min_elements = 1024;
};

class ActivationStore final : public SavedTensorHooks {
 public:
  explicit ActivationStore(const ActivationStoreOptions& options);
  std::unique_ptr<PackedTensor> Pack(const Tensor& t) override;

 private:
  const ActivationStoreOptions options_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ACTIVATIONS_ACTIVATION_STORE_H_
