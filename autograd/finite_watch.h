// SPDX-License-Identifier: Apache-2.0
// Where numbers stop being finite: a watch looks through the result of every operation that
// records, and through every gradient, and keeps the first that is not finite, in the order of the
// passes.
//
//   FiniteWatch watch;
//   {
//     const TapeWatcher::Scope scope(&watch);
//     const Tensor loss = model.Loss(batch);
//     watch.Enter({.backward = true});
//     Backward(loss);
//   }
//   if (watch.found()) std::cout << *watch.found() << "\n";
//
// An infinity that an operation is given as a constant, beside nothing but 0 and 1, is a mask's and
// meant: what it leads to is not looked for. A region that runs again (autograd/recompute.h) is not
// looked through twice. All tensors are read: a pass takes several times as long. Nothing on meta.
#ifndef TESSERA_AUTOGRAD_FINITE_WATCH_H_
#define TESSERA_AUTOGRAD_FINITE_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape_watcher.h"
#include "base/text_builder.h"
#include "core/tensor.h"

namespace tessera {

// What there is to say of a tensor's numbers.
struct NumbersSummary {
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t not_finite = 0;  // elements
  int64_t first = -1;      // of these the first, in row-major order; -1: none
  double value = 0;        // what it is
  double greatest = 0;     // of the finite ones: the greatest magnitude
  double root_mean_square = 0;

  bool finite() const { return not_finite == 0; }
};
NumbersSummary SummaryOf(const Tensor& t);
// "float32[2, 3], is finite (at most 4.5, rms 1.2)" or "float32[2, 3], is inf at element 4 (2
// elements are not finite; the others at most 3e38, rms 1e36)".
TextBuilder& operator<<(TextBuilder& text, const NumbersSummary& summary);

// A number that is not finite, though what it was made of is, as far as can be seen.
struct BadNumber {
  enum class Kind {
    kResult,    // an operation's result; operands are what it was given
    kGradient,  // what an operation's gradient function gave for an operand; operands are the
                // gradients of its results
    kSum,       // of gradients that are finite, which reached an operation's result
  };
  Kind kind = Kind::kResult;
  PassPlace place;
  std::string operation;  // "matmul"
  std::string module;     // "h.3.mlp.c_fc"; "": no module's Forward called it
  int64_t index = 0;      // of the result or of the operand
  NumbersSummary numbers;
  std::vector<NumbersSummary> operands = {};
};
// "the result 0 of 'matmul' in h.3.mlp.c_fc, float32[8, 256], is inf at element 77 (...); operand
// 0, float32[8, 64], is finite (...); ...".
TextBuilder& operator<<(TextBuilder& text, const BadNumber& bad);

class FiniteWatch final : public TapeWatcher {
 public:
  // Throws Error at what it finds, instead of keeping it.
  explicit FiniteWatch(bool throws = false) : throws_(throws) {}

  const std::optional<BadNumber>& found() const { return found_; }

 private:
  void Results(const Origin& origin, const std::vector<Tensor>& operands,
               const std::vector<Tensor>& results) override;
  void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) override;
  void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                const std::vector<Tensor>& of_results) override;
  // Whether what is found now would come before what has been.
  bool Looks() const { return !found_ || place() < found_->place; }
  void Keep(BadNumber::Kind kind, const Origin& origin, size_t index, const Tensor& t,
            const std::vector<Tensor>& operands);

  const bool throws_;
  std::optional<BadNumber> found_;
};

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_FINITE_WATCH_H_
