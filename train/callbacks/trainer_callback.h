// SPDX-License-Identifier: Apache-2.0
// What a program does at moments of a run: it reads the state and may ask for something.
//
//   struct StopWhenLearnt : TrainerCallback {
//     void OnStepEnd(const TrainState& state, TrainControl& control) override {
//       if (state.loss < 0.1) control.Stop("the loss is small");
//     }
//   };
//   StopWhenLearnt learnt;
//   trainer.AddCallback(&learnt);
//
// Callbacks are called on every rank, with the same state but for its clock, in the order in which
// they were added, behind those that the configuration asks for (early_stopping.h, best_model.h). A
// step's order is OnEpochBegin (of its first), OnStepBegin, the step, OnStepEnd; then, where due or
// asked for, OnLog, OnEvaluate; OnEpochEnd (of its last); then, where due or asked for, OnSave.
// What one rank asks for all ranks do. Asked for by OnSave or OnTrainBegin, it is done after the
// next step, but for `stop`. A checkpoint holds what callbacks remembered when it was begun: what
// OnSave does comes behind it, and comes again where a run continues from an earlier one.
//
// One that changes the model (its parameters that train, its hooks) calls
// Trainer::ReleaseStepMemory.
#ifndef TESSERA_TRAIN_CALLBACKS_TRAINER_CALLBACK_H_
#define TESSERA_TRAIN_CALLBACKS_TRAINER_CALLBACK_H_

#include <string>
#include <utility>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/train_state.h"

namespace tessera::train {

struct TrainControl {
  bool log = false;       // a row of metrics
  bool evaluate = false;  // an error where there is no validation data
  bool save = false;      // a checkpoint
  // The run is over after this step, as if it had been its last: nothing is logged or evaluated
  // for that, a checkpoint is saved.
  bool stop = false;
  std::string reason = {};  // of stopping, in words

  void Stop(std::string why) {
    stop = true;
    reason = std::move(why);
  }
};

class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

  // Before the first step of this process, with what a checkpoint remembered given back.
  virtual void OnTrainBegin(const TrainState&, TrainControl&) {}
  // After everything else, where the run is over; not where it was interrupted and will continue.
  virtual void OnTrainEnd(const TrainState&) {}
  virtual void OnEpochBegin(const TrainState&, TrainControl&) {}
  virtual void OnEpochEnd(const TrainState&, TrainControl&) {}
  virtual void OnStepBegin(const TrainState&, TrainControl&) {}
  virtual void OnStepEnd(const TrainState&, TrainControl&) {}
  // `row` is what `metrics.jsonl` gets of the steps since the last one; to look inside, as with
  // what `State` gives, include nlohmann/json.hpp.
  virtual void OnLog(const TrainState&, const nlohmann::ordered_json& /*row*/, TrainControl&) {}
  virtual void OnEvaluate(const TrainState&, TrainControl&) {}
  virtual void OnSave(const TrainState&, const std::string& /*checkpoint*/, TrainControl&) {}

  // One that remembers something has a name of its own, under which every checkpoint has its state:
  // a resumed run is then the uninterrupted one. The same on all ranks.
  virtual std::string name() const { return ""; }
  virtual nlohmann::json State() const;  // null
  // Of what State gave; a failure says what is wrong with it.
  virtual Status Restore(const nlohmann::json& /*state*/) { return OkStatus(); }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CALLBACKS_TRAINER_CALLBACK_H_
