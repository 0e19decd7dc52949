// SPDX-License-Identifier: Apache-2.0
// Reverse-mode automatic differentiation: the tape, and the engine that runs it backwards.
//
//   Tensor w = RequireGrad(Tensor::FromVector<float>({1, 2}, {2}));
//   Tensor loss = Sum(Mul(w, w));
//   Backward(loss);
//   Grad(w);                                   // float32[2] {2, 4}
//
// A tensor takes part when it is a leaf made by `RequireGrad`, or the result of an operation one of
// whose inputs takes part while gradients are enabled. An operation computes its result and calls
// `Record` with a function for its gradient:
//
//   Tensor Square(const Tensor& x) {
//     Tensor y = ...;
//     if (AnyRequiresGrad({x})) {
//       Record("square", {x}, {y}, [x = SavedTensor(x)](GradContext& ctx) {
//         ctx.set(0, Mul(Mul(ctx.grad(), x.Unpack()), 2.0));
//       });
//     }
//     return y;
//   }
//
// Order. One thread runs the nodes in reverse order of creation, so that all ranks issue the
// collectives of a backward pass in the same order, and sums of gradients have the same bits in
// every run. There is no double backward: gradients are computed with the tape off.
//
// Weight gradients apart. A node may give the gradient of its weights by a second function;
// `Backward` with a `WeightGradQueue` leaves those for the caller to run later (zero-bubble
// pipelines). Only a node whose weights are leaves is split.
#ifndef TESSERA_AUTOGRAD_AUTOGRAD_H_
#define TESSERA_AUTOGRAD_AUTOGRAD_H_

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/saved_tensor.h"
#include "core/execution_context.h"
#include "core/tensor.h"

namespace tessera {

// --- Leaves ------------------------------------------------------------------------------------

// Makes `t` a leaf whose gradient is collected in `grad_dtype` (default: float32 for half
// precision, else t's dtype). Returns t. Throws Error for integer dtypes, a result of the tape, and
// bytes that are only read (a mapped file, a const pointer).
Tensor RequireGrad(const Tensor& t);
Tensor RequireGrad(const Tensor& t, DType grad_dtype);
// Takes a leaf off the tape again; its gradient is dropped.
void DropGrad(const Tensor& leaf);

// Whether a tensor takes part, and whether as a leaf.
bool RequiresGrad(const Tensor& t);
bool IsLeaf(const Tensor& t);

// The gradient collected so far; undefined when there is none.
Tensor Grad(const Tensor& leaf);
// Sets the gradient; later contributions are added to it. An undefined tensor clears.
void SetGrad(const Tensor& leaf, const Tensor& grad);
// Where the next gradient is to lie (a view into a bucket, say), of the leaf's shape and gradient
// dtype: the first contribution is written there, later ones are added. Until it comes the leaf has
// no gradient, and `buffer` may hold anything. SetGrad takes this back. A function is asked for the
// buffer when that contribution comes, so that no memory is needed before.
void SetGradBuffer(const Tensor& leaf, const Tensor& buffer);
void SetGradBuffer(const Tensor& leaf, std::function<Tensor()> buffer);
DType GradDType(const Tensor& leaf);

// --- Modes -------------------------------------------------------------------------------------

// Whether operations record, on this thread.
inline bool GradEnabled() { return ExecutionContext::Current().records; }

// Within its scope operations of this thread do not record (or do again).
class NoGrad : public ExecutionModeScope<&ExecutionContext::records> {
 public:
  explicit NoGrad(bool enabled = false) : ExecutionModeScope(enabled) {}
};

// Within its scope, operations that record and backward passes of this thread throw Error at the
// first number that is not finite, with the operation, the module whose Forward ran it, and its
// operands in numbers. Slow: every tensor is read. (That an error in a gradient function names
// operation and module needs no mode.) autograd/finite_watch.h keeps what it finds instead.
class DetectAnomaly {
 public:
  explicit DetectAnomaly(bool enabled = true);
  ~DetectAnomaly();

 private:
  const std::unique_ptr<TapeWatcher> watch_;
  const ExecutionModeScope<&ExecutionContext::watcher> scope_;
};

// --- Recording ---------------------------------------------------------------------------------

class Engine;
class GradRecord;
class HookSetBase;

// What a gradient function sees.
class GradContext {
 public:
  // Gradient that reached an output; undefined when none did (possible with several outputs only).
  // Its shape is the output's; it may be strided, its dtype is the output's.
  const Tensor& grad(int output = 0) const {
    CheckPlace(output, grads_->size(), "outputs");
    return (*grads_)[output];
  }
  // Whether input i takes part, so that work for others can be left out.
  bool needs(int input) const {
    CheckPlace(input, needs_->size(), "inputs");
    return (*needs_)[input];
  }
  // The gradient of input i, in the input's shape, at most once per input. An undefined tensor says
  // that there is none; to say nothing for an input that needs a gradient is an error.
  void set(int input, Tensor grad) {
    CheckPlace(input, results_->size(), "inputs");
    (*results_)[input] = std::move(grad);
    (*answered_)[input] = true;
  }
  // The gradient that leaf `input` has from earlier contributions, where this one may be added to
  // it in place instead of being `set`, so that it needs no memory of its own. Undefined where it
  // has to be set: there is no gradient yet, a hook is to see that of this pass, or contributions
  // wait in a queue. Whoever writes into it bumps its storage's version.
  Tensor accumulator(int input) const;
  // The same of any input, a result of the tape as well, in the input's dtype: what adds to a part
  // of the gradient costs what the part does.
  Tensor collected(int input) const;

 private:
  friend class Engine;
  static void CheckPlace(int place, size_t count, const char* of) {
    TESSERA_CHECK(place >= 0 && static_cast<size_t>(place) < count, "gradient", place,
                  ": the operation has ", count, " ", of);
  }
  const std::vector<std::shared_ptr<GradRecord>>* records_ = nullptr;
  const std::vector<Tensor>* grads_ = nullptr;
  const std::vector<bool>* needs_ = nullptr;
  std::vector<Tensor>* results_ = nullptr;
  std::vector<bool>* answered_ = nullptr;
  Engine* engine_ = nullptr;  // nullptr: nothing may be added to in place
};

using GradFn = std::function<void(GradContext&)>;

// Whether gradients are enabled and one of the (possibly undefined) tensors takes part. Throws
// Error where they are enabled and one is severed (core/tensor.h).
bool AnyRequiresGrad(std::initializer_list<Tensor> inputs);
bool AnyRequiresGrad(const std::vector<Tensor>& inputs);

// Connects outputs (fresh tensors, not inputs) to inputs. Inputs may be undefined.
void Record(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
            GradFn backward);
// Likewise with the gradients of `weight_inputs` given by a function of its own.
void RecordSplit(const char* name, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& outputs, GradFn input_backward,
                 std::vector<int> weight_inputs, GradFn weight_backward);
// For communication: `start` begins it, `finish` waits for it and sets the gradients. When the
// gradient comes from a node that computes weight gradients apart, `start` is called before those
// are computed, so that both go on at once.
void RecordStarted(const char* name, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs, GradFn start, GradFn finish);

// --- Running -----------------------------------------------------------------------------------

// Weight gradients that a backward pass left for later, in order.
class WeightGradQueue {
 public:
  bool empty() const { return work_.empty(); }
  size_t size() const { return work_.size(); }
  // Runs (and removes) the oldest `count` of them, by default all.
  void Run(size_t count = static_cast<size_t>(-1));

 private:
  friend class Engine;
  std::deque<std::function<void()>> work_;
};

// How a backward pass goes.
struct BackwardOptions {
  // Keeps what nodes saved, so that the graph can be run again.
  bool retain_graph = false;
  // Where split weight gradients go; nullptr runs them at once.
  WeightGradQueue* weight_queue = nullptr;
  // With a queue: whatever is to be added to a leaf waits there, in order, the gradients of nodes
  // that are not split included, so that a leaf sees one micro-batch after the other however
  // backward passes and queues take turns.
  bool queue_leaf_gradients = false;
};

// Adds to the gradient of every leaf that the roots depend on. `grads` are the gradients of the
// roots, of their shapes; an undefined one stands for 1 and needs a one-element root.
void Backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& grads,
              const BackwardOptions& options = {});
void Backward(const Tensor& root, const BackwardOptions& options = {});

// --- Hooks -------------------------------------------------------------------------------------

// Removes its hook; dropping the handle leaves the hook where it is. May outlive the tensor.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(std::weak_ptr<HookSetBase> hooks, int id) : hooks_(std::move(hooks)), id_(id) {}
  // Nothing where it has been removed.
  void Remove();

 private:
  std::weak_ptr<HookSetBase> hooks_;
  int id_ = 0;
};

// Called in each backward pass with the gradient of `t` once it is whole, before it flows on, or,
// of a leaf, before it is added to what the leaf has from earlier passes; what it returns (if
// defined) takes its place: it must have the gradient's shape and device, else Backward throws
// Error, and is cast to the gradient's dtype. Of a leaf that is the sum over all its uses, queued
// weight gradients included, in the leaf's gradient dtype. Not called where no gradient comes.
using TensorHook = std::function<Tensor(const Tensor& grad)>;
HookHandle AddGradHook(const Tensor& t, TensorHook hook);

// Called in each backward pass after the last contribution to this leaf has been added, queued
// weight gradients included. Under recomputation too it fires once.
using CompleteHook = std::function<void(const Tensor& leaf)>;
HookHandle AddGradCompleteHook(const Tensor& leaf, CompleteHook hook);

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_AUTOGRAD_H_
