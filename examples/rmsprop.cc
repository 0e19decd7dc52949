// SPDX-License-Identifier: Apache-2.0
// An optimizer of one's own: `tessera` with RMSprop among its optimizers.
//
//   rmsprop train gpt-mini --data text.txt --out run --optimizer rmsprop --alpha 0.95
//
// RMSprop (Tieleman and Hinton 2012, lecture 6.5 of "Neural Networks for Machine Learning"), with
// weight decay apart from the gradient, as AdamW has it:
//   v = alpha v + (1 - alpha) g^2
//   p = p - lr weight_decay p - lr g / (sqrt(v) + eps)
#include <utility>
#include <vector>

#include <tessera/base/options.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/optim/optimizer_kind.h>
#include <tessera/optim/tensor_step.h>
#include <tessera/tools/program.h>

namespace {

using namespace tessera;
using namespace tessera::optim;

struct RmsPropOptions {
  double lr = 1e-3;
  double alpha = 0.99;
  double eps = 1e-8;

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<RmsPropOptions>("RMSprop")
                            .Add("alpha", &RmsPropOptions::alpha,
                                 "decay rate of the mean of squares", {.least = 0, .below = 1})
                            .Add("eps", &RmsPropOptions::eps,
                                 "added to what gradients are divided by", {.above = 0}));
    return *table;
  }
};

class RmsProp final : public MultiTensorOptimizer {
 public:
  using Options = RmsPropOptions;
  static std::vector<StateKind> States(const Parameter&, const Options&) {
    return {{"square_avg"}};
  }
  static bool NeedsWhole(const Parameter&, const Options&) { return false; }

  explicit RmsProp(std::vector<ParameterGroup> groups, const RmsPropOptions& options = {})
      : MultiTensorOptimizer(std::move(groups), options.lr,
                             [&](const Parameter& p) { return States(p, options); }),
        options_(options) {
    CheckOptions("rmsprop", options);
  }

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override {
    const TensorStep step(inputs, learning_rate(), this->step());
    for (const PendingUpdate& update : updates) {
      const Tensor g = step.Gradient(update);
      const Tensor& average = update.of->states[0];
      const Tensor squares = average.Detach() * options_.alpha + Square(g) * (1 - options_.alpha);
      step.Assign(average, squares);
      const Tensor rate = step.Rate(update);
      const Tensor decayed =
          Scaled(TensorStep::Weights(update).Detach(), Affine(rate, -update.of->weight_decay, 1.0));
      step.AssignWeights(update, decayed - Scaled(g / (Sqrt(squares) + options_.eps), rate));
    }
  }

  const RmsPropOptions options_;
};

TESSERA_REGISTER_OPTIMIZER(RmsProp, "rmsprop", "RMSprop (Tieleman and Hinton 2012)");

}  // namespace

int main(int argc, char** argv) { return tessera::Main(argc, argv, {.name = "rmsprop"}); }
