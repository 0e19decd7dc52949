// SPDX-License-Identifier: Apache-2.0
// Runs any schedule over the ranks of a pipeline.
//
//   TESSERA_ASSIGN_OR_RETURN(Stage stage, BuildStage(config, context, cuts, mesh.pp()));
//   PipelineExecutor executor(stage, {.schedule = ScheduleKind::kOneForwardOneBackward});
//   // every step:
//   StepResult r = executor.Run(micro_batches, {
//       .run_options = [&](int m) { return OptionsOf(step, m); },
//       .scale_loss = [&](const Tensor& loss, int) { return Mul(loss, 1.0 / targets); }});
//   stage.JoinTiedGradients();
//   optimizer.Step();
//   for (double loss : executor.ShareLosses(r.losses)) sum += loss;     // on every rank
//
// Every rank of the pp group calls Run with the same micro-batches (the same names, shapes and
// elements): the first stage reads all of them, later ones those tensors that blocks pass on
// unchanged (labels, masks), which are therefore not sent. Shapes may change from one micro-batch
// to the next.
//
// Bits. A chunk's gradients are those of its blocks in one process: what reaches a stage's inputs
// is a result of the tape, not a leaf, so that sums of a tensor's several uses are taken in the
// same order and dtype. Gradients of parameters are added micro-batch by micro-batch under every
// schedule; where a schedule splits backward, all additions to a chunk's parameters wait for its
// weight-gradient action (BackwardOptions::queue_leaf_gradients), small ones as well.
//
// Callbacks run on the caller's thread. A failure on one rank is an Error there; other ranks wait
// in their messages until the communicator ends them.
#ifndef TESSERA_DIST_PIPELINE_EXECUTOR_H_
#define TESSERA_DIST_PIPELINE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "dist/pipeline/schedule.h"
#include "dist/pipeline/stage.h"
#include "models/model.h"

namespace tessera::dist {

struct ExecutorOptions {
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  // When each action begins and ends is kept in StepResult::timeline. The device is waited for
  // after each of them.
  bool record_timeline = false;
};

// What a training step is told.
struct StepOptions {
  // Of micro-batch m: keys of random bits, loss reduction, ... Required.
  std::function<models::RunOptions(int m)> run_options;
  // The root of the backward pass, from a micro-batch's loss: divided by the step's targets, times
  // the scale of mixed precision. On the tape; the loss itself when empty.
  std::function<Tensor(const Tensor& loss, int m)> scale_loss = {};
  // The loss of the last chunk's outputs and the micro-batch; their `loss` when empty.
  std::function<Tensor(const models::Bundle& outputs, const models::Bundle& inputs)> criterion = {};
  // What the criterion is given as `inputs` of micro-batch m, which may have more than blocks take;
  // the micro-batch itself when empty.
  std::function<models::Bundle(int m)> criterion_inputs = {};
  // Before a forward pass, a backward pass or a part of one is run.
  std::function<void(const Action& action)> before_pass = {};
  // Before gradients of micro-batch m are added to the parameters of this rank's chunk number
  // `local_chunk`: m = 0, 1, ... for each of them. (ParameterStore::BeginMicroBatch of that
  // chunk's reducer.)
  std::function<void(int local_chunk, int m)> before_gradients = {};
  // The outputs of the last chunk are returned, off the tape.
  bool keep_outputs = false;
};

// When an action ran.
struct TimedAction {
  Action action;
  double begin = 0;  // seconds since the step began on this rank
  double end = 0;
};

// The only element of a tensor; not a number on meta, where there is none.
double NumberOf(const Tensor& t);

struct StepResult {
  // Of each micro-batch, before scaling; on the last stage's rank, empty elsewhere. NumberOf.
  std::vector<double> losses = {};
  std::vector<models::Bundle> outputs = {};  // likewise, with keep_outputs
  // The greatest number of (micro-batch, chunk) pairs held at once: Simulation::peak_live.
  int peak_live = 0;
  std::vector<TimedAction> timeline = {};
};

class PipelineExecutor {
 public:
  // Collective over the stage's group. `stage` outlives the executor. Throws Error when ranks have
  // different numbers of chunks.
  PipelineExecutor(const Stage& stage, const ExecutorOptions& options);
  ~PipelineExecutor();
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  // One step: forward and backward of all micro-batches, gradients left in the parameters' leaves.
  // Collective. Throws Error when the schedule does not fit their number (CheckSchedule asks first)
  // or a batch is not like the others'.
  StepResult Run(const std::vector<models::Bundle>& micro_batches, const StepOptions& options);
  // Any schedule of this pipeline's shape; it is simulated first, and refused with what is found.
  StepResult Run(const Schedule& schedule, const std::vector<models::Bundle>& micro_batches,
                 const StepOptions& options);

  // Forward passes only, without the tape: losses (where there are any) and outputs. Any number of
  // micro-batches, none included. Collective.
  StepResult Evaluate(const std::vector<models::Bundle>& micro_batches, const StepOptions& options);

  // The last stage's losses on every rank of the pipeline. Collective.
  std::vector<double> ShareLosses(const std::vector<double>& losses);
  // The last stage's bundle on every rank of the pipeline. Collective.
  models::Bundle ShareOutputs(const models::Bundle& outputs);

  const Stage& stage() const { return stage_; }
  bool is_last_stage() const { return stage_.rank() + 1 == stage_.stages(); }
  // What Run executes with so many micro-batches.
  StatusOr<Schedule> ScheduleFor(int micro_batches) const;

 private:
  class Step;
  struct Parts;

  const Stage& stage_;
  const ExecutorOptions options_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_EXECUTOR_H_
