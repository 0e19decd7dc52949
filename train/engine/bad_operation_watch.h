// SPDX-License-Identifier: Apache-2.0
// Finds the operation that gave the first number that is not finite, and keeps its tensors.
//
//   BadOperationWatch watch(/*stops=*/true);
//   {
//     const TapeWatcher::Scope scope(&watch);
//     try {
//       Backward(model.Loss(batch));
//     } catch (const BadOperationWatch::Stop&) {
//     }
//   }
//   if (watch.found()) std::cout << *watch.found() << "\n";
//   for (const auto& [name, tensor] : watch.tensors().entries()) ...
//
// A FiniteWatch (autograd/finite_watch.h) looks; this watch adds the tensors and the end of the
// pass.
#ifndef TESSERA_TRAIN_ENGINE_BAD_OPERATION_WATCH_H_
#define TESSERA_TRAIN_ENGINE_BAD_OPERATION_WATCH_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/finite_watch.h"
#include "autograd/tape_watcher.h"
#include "core/bundle.h"

namespace tessera::train {

class BadOperationWatch final : public TapeWatcher {
 public:
  // Ends the pass. It is no Error, so gradient functions hand it on as it is.
  struct Stop {};

  // `stops`: throws Stop at the first number that it finds, before any later operation runs.
  // Otherwise the passes run to their end, and the first number in the order of one process counts.
  explicit BadOperationWatch(bool stops) : stops_(stops) {}

  const std::optional<BadNumber>& found() const { return watch_.found(); }
  // Copies on the CPU. Of an operation `input.0`, ... and `result.0`, ...; of its gradient function
  // `gradient.result.0`, ..., which it was given, and `gradient.input.0`, ..., up to the one that
  // is not finite. Inputs and gradients of results have the numbers of BadNumber::operands.
  const Bundle& tensors() const { return tensors_; }

 private:
  void Results(const Origin& origin, const std::vector<Tensor>& operands,
               const std::vector<Tensor>& results) override;
  void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) override;
  void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                const std::vector<Tensor>& of_results) override;
  // Whether `look`, a call of the inner watch, found a number.
  template <typename Look>
  bool Finds(const Look& look);
  // The inner watch counts the operation itself.
  void EnterBefore();
  void StopIfWanted() const;

  const bool stops_;
  FiniteWatch watch_;
  Bundle tensors_;
  // What the gradient function that runs now has given, by its operands.
  std::vector<std::pair<size_t, Tensor>> gradients_;
  const void* gradients_of_ = nullptr;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_BAD_OPERATION_WATCH_H_
