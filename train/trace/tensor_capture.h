// SPDX-License-Identifier: Apache-2.0
// Keeps the one tensor of an operation that a TracedTensor names.
//
//   TensorCapture capture(wanted);
//   const TapeWatcher::Scope scope(&capture);
//   ...                                        // the steps before: nothing is kept
//   capture.Begin();
//   loop.Step(batches, whole);
//   if (capture.tensor().defined()) ...
#ifndef TESSERA_TRAIN_TRACE_TENSOR_CAPTURE_H_
#define TESSERA_TRAIN_TRACE_TENSOR_CAPTURE_H_

#include <cstdint>
#include <vector>

#include "autograd/tape_watcher.h"
#include "core/tensor.h"
#include "train/trace/traced_tensor.h"

namespace tessera::train {

class TensorCapture final : public TapeWatcher {
 public:
  explicit TensorCapture(const TracedTensor& wanted) : wanted_(wanted) {}

  // The step is the wanted one.
  void Begin() { began_ = true; }
  // A copy on the CPU; undefined until it was seen.
  const Tensor& tensor() const { return tensor_; }

 private:
  void Results(const Origin& origin, const std::vector<Tensor>& operands,
               const std::vector<Tensor>& results) override;
  void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) override {
    static_cast<void>(origin), static_cast<void>(of_results);  // seen where they were given
  }
  void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                const std::vector<Tensor>& of_results) override;
  void See(const Origin& origin, bool gradient, size_t index, const Tensor& t);

  const TracedTensor wanted_;
  bool began_ = false;
  int64_t seen_ = 0;  // of the same name and place
  Tensor tensor_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_TENSOR_CAPTURE_H_
