// SPDX-License-Identifier: Apache-2.0
// What training passes find out for evaluation: the running mean and variance of BatchNorm.
//
//   nn::RunningStatistics statistics;
//   {
//     const nn::RunningStatistics::Scope scope(&statistics);
//     loss = Loss(net.Forward(x, {.training = true}));
//   }
//   Backward(loss);
//   optimizer.Step();
//   statistics.Apply();                     // running = 0.9 running + 0.1 found
//
// A forward pass changes nothing in modules, so what it finds waits here, and a step counts as one
// batch: the mean over its micro-batches, and over the ranks of `group`, moves the running
// statistics once (layouts agree to rounding: each rank adds up its own first). So do the trainer
// and the loops of train/ (train/engine); layouts that cannot, pipelines and parameters that are
// cut over ranks (ZeRO 3), open no scope, and a layer that finds none throws Error. Regions that
// are computed again in the backward pass add nothing.
#ifndef TESSERA_NN_RUNNING_STATISTICS_H_
#define TESSERA_NN_RUNNING_STATISTICS_H_

#include <functional>
#include <vector>

#include "nn/module.h"

namespace tessera::nn {

class RunningStatistics {
 public:
  // Passes of this thread leave here what they find; nullptr: nowhere.
  class Scope {
   public:
    explicit Scope(RunningStatistics* statistics);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RunningStatistics* const before_;
  };
  // That of this thread's innermost scope.
  static RunningStatistics* Current();

  // What `running` becomes of itself, and of the mean of what was found.
  using Update = std::function<Tensor(const Tensor& running, const Tensor& mean)>;

  // One pass's `found`, of `running`'s shape, in the order of the layers. Without an update of its
  // own, running becomes (1 - momentum) running + momentum mean.
  void Add(Parameter& running, const Tensor& found, double momentum);
  void Add(Parameter& running, const Tensor& found, Update update);

  // Updates the running statistics by the mean of what was found, and forgets that.
  // `group`: ranks that hold the same parameters, which all have found the same number of times.
  // `left_out`, 0-d: where it is not zero, running stays. Collective, and reads nothing from the
  // device.
  void Apply(const Group& group = nullptr, const Tensor& left_out = Tensor());
  // Forgets what was found.
  void Clear() { entries_.clear(); }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Parameter* running;
    Tensor sum;
    double count;
    Update update;
  };
  std::vector<Entry> entries_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_RUNNING_STATISTICS_H_
