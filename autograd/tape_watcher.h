// SPDX-License-Identifier: Apache-2.0
// Sees the results of every operation and the gradients of every backward step, for a search for
// numbers that are not finite (autograd/finite_watch.h) or a record of digests
// (train/trace/digest_trace.h).
//
//   class Counter final : public TapeWatcher {
//     void Results(const Origin&, const std::vector<Tensor>&, const std::vector<Tensor>&) override
//     {
//       ++operations;
//     }
//     ...
//   };
//   Counter counter;
//   const TapeWatcher::Scope scope(&counter);          // of this thread
//
// A watcher sees the tape's own tensors and must not change them. While a watcher is set, gradient
// functions do not add into a gradient in place (GradContext::accumulator), so each one gives a
// result of its own.
#ifndef TESSERA_AUTOGRAD_TAPE_WATCHER_H_
#define TESSERA_AUTOGRAD_TAPE_WATCHER_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/execution_context.h"
#include "core/tensor.h"

namespace tessera {

struct Origin;  // autograd/engine.h

// Which pass of a step an operation belongs to. They are ordered as one process without a pipeline
// runs them.
struct PassPlace {
  int64_t micro_batch = 0;
  bool backward = false;
  int64_t chunk = 0;      // of a model that is cut into several
  int64_t operation = 0;  // how many came before, on this rank

  bool operator<(const PassPlace& other) const {
    const auto order = [](const PassPlace& p) {
      return std::tuple(p.micro_batch, p.backward, p.backward ? -p.chunk : p.chunk, p.operation);
    };
    return order(*this) < order(other);
  }
};

class TapeWatcher {
 public:
  virtual ~TapeWatcher() = default;

  using Scope = ExecutionModeScope<&ExecutionContext::watcher>;
  // That of this thread; nullptr: nobody looks.
  static TapeWatcher* Current() { return ExecutionContext::Current().watcher; }

  // What comes next belongs to this pass, from its first operation on.
  void Enter(const PassPlace& place) { place_ = place; }
  const PassPlace& place() const { return place_; }

  // For the tape and its engine. A region that runs again (autograd/recompute.h) is not seen twice.
  void SeeResults(const Origin& origin, const std::vector<Tensor>& operands,
                  const std::vector<Tensor>& results) {
    if (ExecutionContext::Current().recomputes) return;
    ++place_.operation;
    Results(origin, operands, results);
  }
  void SeeArriving(const Origin& origin, const std::vector<Tensor>& of_results) {
    ++place_.operation;
    Arriving(origin, of_results);
  }
  void SeeGradient(const Origin& origin, size_t operand, const Tensor& gradient,
                   const std::vector<Tensor>& of_results) {
    Gradient(origin, operand, gradient, of_results);
  }

 private:
  // An operation was recorded.
  virtual void Results(const Origin& origin, const std::vector<Tensor>& operands,
                       const std::vector<Tensor>& results) = 0;
  // Gradients have reached an operation's results, and lead to those of its operands.
  virtual void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) = 0;
  virtual void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                        const std::vector<Tensor>& of_results) = 0;

  PassPlace place_;
};

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_TAPE_WATCHER_H_
