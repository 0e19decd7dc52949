// SPDX-License-Identifier: Apache-2.0
// Gradient recomputation ("Training Deep Nets with Sublinear Memory Cost", Chen et al. 2016):
// activation checkpointing.
//
//   Tensor y = Recompute([&](const std::vector<Tensor>& in) { return block.Forward(in[0]); }, {x});
//
// Runs `fn` on the inputs and returns what it returns, of any type. What its operations save is
// dropped; when the backward pass first asks for any of it, `fn` runs again (with the tape on, so
// that it saves the same tensors in the same order) and the saved tensors are taken from that
// second run. The graph is that of the first run, so order, gradients' bits, "complete" hooks and
// queued weight gradients are those of a run without recomputation. Random bits are a function of
// their key, so dropout repeats itself; whatever else `fn` captures must be unchanged. Collectives
// in `fn` run twice, on every rank. Memory: the inputs, until the backward pass; then one region's
// activations at a time.
#ifndef TESSERA_AUTOGRAD_RECOMPUTE_H_
#define TESSERA_AUTOGRAD_RECOMPUTE_H_

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// `first` once, here; `again` on the inputs, off the tape, for the backward pass.
void RunRegion(const std::function<void()>& first,
               std::function<void(const std::vector<Tensor>&)> again,
               const std::vector<Tensor>& inputs);

template <typename Fn>
auto Recompute(Fn fn, const std::vector<Tensor>& inputs) {
  std::optional<decltype(fn(inputs))> result;
  RunRegion([&] { result = fn(inputs); }, [fn](const std::vector<Tensor>& again) { fn(again); },
            inputs);
  return *std::move(result);
}

// Whether this thread is inside a second run: hooks that release parameters after a layer's
// forward pass must not do so then, since the backward pass that follows needs them.
bool InRecomputation();

// Whether the tensor that this thread is saving is a region's input: all that is kept of a region.
bool SavingRegionInput();

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_RECOMPUTE_H_
