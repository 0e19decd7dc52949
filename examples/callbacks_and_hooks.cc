// SPDX-License-Identifier: Apache-2.0
// The program of docs/callbacks-and-hooks.md, which shows what it prints.
//
//   callbacks_and_hooks OUT           trains below the folder OUT
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/core/batch_keys.h>
#include <tessera/data/dataset/map_dataset.h>
#include <tessera/models/family.h>
#include <tessera/nn/linear.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/train/ranks/run_on_ranks.h>
#include <tessera/train/trainer.h>

#include "nlohmann/json.hpp"

using namespace tessera;

namespace {

// Ends a run that has seen so many tokens, however often it was stopped and went on.
class TokenBudget : public train::TrainerCallback {
 public:
  explicit TokenBudget(int64_t budget) : budget_(budget) {}

  void OnTrainBegin(const train::TrainState& state, train::TrainControl&) override {
    std::cout << "begins at step " << state.step << " with " << seen_ << " tokens\n";
  }
  void OnStepEnd(const train::TrainState& state, train::TrainControl& control) override {
    seen_ += state.tokens;
    if (seen_ >= budget_) control.Stop(Concat(budget_, " tokens are spent"));
  }

  std::string name() const override { return "token_budget"; }
  nlohmann::json State() const override { return seen_; }
  Status Restore(const nlohmann::json& state) override {
    if (!state.is_number_integer()) return DataLoss("is no number of tokens");
    seen_ = state.get<int64_t>();
    return OkStatus();
  }

 private:
  const int64_t budget_;
  int64_t seen_ = 0;
};

// Rows of 16 tokens that count round and round, to be continued.
train::TaskData CountingRows() {
  const auto row = [](int64_t index) -> StatusOr<Bundle> {
    std::vector<int64_t> ids, next;
    for (int64_t i = 0; i < 16; ++i) {
      ids.push_back((index + i) % 13);
      next.push_back((index + i + 1) % 13);
    }
    return Bundle{{keys::kInputIds, Tensor::FromVector(ids, {16})},
                  {keys::kTargets, Tensor::FromVector(next, {16})}};
  };
  train::TaskData data;
  data.train = std::make_shared<data::MapDataset<Bundle>>(256, row, data::StackSamples);
  return data;
}

// A run of `max_steps` steps in `out`, from where it was.
Status Train(const std::string& out, int64_t max_steps, train::TrainerCallback* callback) {
  TESSERA_ASSIGN_OR_RETURN(const auto model, models::BuildModel({{"model_type", "gpt2"},
                                                                 {"vocab_size", 13},
                                                                 {"n_positions", 16},
                                                                 {"n_embd", 32},
                                                                 {"n_layer", 1},
                                                                 {"n_head", 2}},
                                                                {.seed = 1}));
  train::RunConfig config;
  config.out = out;
  config.batch_size = 8;
  config.max_steps = max_steps;
  config.lr_schedule = "constant";
  train::Trainer trainer(config, *model, CountingRows());
  trainer.AddCallback(callback);
  TESSERA_ASSIGN_OR_RETURN(const train::TrainResult result,
                           trainer.Train({.resume = true, .output = nullptr}));
  std::cout << "ends at step " << result.state.step << ": "
            << (result.ended_by.empty() ? "all steps are done" : result.ended_by) << "\n";
  return OkStatus();
}

Status TrainInTwoParts(const std::string& out) {
  TESSERA_RETURN_IF_ERROR(RemoveAll(out));
  TokenBudget first(768);
  TESSERA_RETURN_IF_ERROR(Train(out, 4, &first));
  TokenBudget second(768);  // another process's, say
  return Train(out, 20, &second);
}

// Its weight is used twice.
class Net : public nn::Module {
 public:
  explicit Net(const nn::Scope& scope) : Module(scope) {}
  Tensor Forward(const Tensor& x) const {
    return Call(x, [&] { return twice_.Forward(Tanh(twice_.Forward(x))); });
  }

 private:
  nn::ReplicatedLinear twice_{
      {.in_features = 2, .out_features = 2, .bias = false, .weight_init = nn::Init::Ones()},
      Child("twice")};
};

void WatchModules(Net& net, const Tensor& x) {
  const auto say = [](const char* moment) {
    return [moment](const nn::Module& m) { std::cout << moment << " " << m.path() << "\n"; };
  };
  nn::Module& layer = *net.children()[0];
  const int id = layer.AddHooks({.pre_forward = say("forward of"),
                                 .post_forward = say("result of"),
                                 .pre_backward = say("gradient reached"),
                                 .post_backward = say("gradient left")});
  Backward(Sum(net.Forward(x)));
  layer.RemoveHooks(id);
  Backward(Sum(net.Forward(x)));  // nothing is said
  net.ZeroGrad();
}

void WatchAWeight(Net& net, const Tensor& x) {
  const Tensor weight = net.FindParameter("twice.weight")->tensor;
  HookHandle halved = AddGradHook(weight, [](const Tensor& grad) {
    std::cout << "of both uses: " << grad << "\n";
    return grad * 0.5;
  });
  const HookHandle complete = AddGradCompleteHook(
      weight, [](const Tensor& leaf) { std::cout << "kept: " << Grad(leaf) << "\n"; });
  Backward(Sum(net.Forward(x)));
  halved.Remove();
  Backward(Sum(net.Forward(x)));  // is added to the gradient
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: callbacks_and_hooks OUT\n"), 2;
  const Status trained = train::Guarded([&] { return TrainInTwoParts(argv[1]); });
  if (!trained.ok()) return train::ReportFailure(trained);
  Net net(nn::Scope::Root({.seed = 1}));
  const Tensor x = Tensor::FromVector<float>({1, -0.5}, {1, 2});
  WatchModules(net, x);
  WatchAWeight(net, x);
}
