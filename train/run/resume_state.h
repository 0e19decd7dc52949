// SPDX-License-Identifier: Apache-2.0
// What a checkpoint keeps of a run beside its tensors, and what it says of the run that continues.
//
//   dist::SaveCheckpoint(path, step, tensors, now.ToJson(), world);
//   ...
//   TESSERA_ASSIGN_OR_RETURN(const ResumeState saved, ResumeState::Of(checkpoint));
//   TESSERA_RETURN_IF_ERROR(saved.CheckData(now, checkpoint.directory()));
//   for (const std::string& line : saved.ChangesTo(now)) log.Warning(line);
#ifndef TESSERA_TRAIN_RUN_RESUME_STATE_H_
#define TESSERA_TRAIN_RUN_RESUME_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "data/dataset/sampler.h"
#include "dist/checkpoint/checkpoint.h"
#include "nlohmann/json_fwd.hpp"
#include "train/train_state.h"

namespace tessera::train {

struct ResumeState {
  // Whether the last step's loss and gradients were.
  bool finite = true;
  // Of the steps since the last row of metrics; perhaps no number.
  double loss_sum = 0;
  int64_t loss_steps = 0;
  std::vector<double> loss_counts = {};     // what their losses have counted
  JsonMember state = {};                    // what callbacks read (StateToJson)
  std::optional<int64_t> total_steps = {};  // of the run
  JsonMember epoch = {};                    // of the one under way (EpochSums)
  JsonMember callbacks = {};                // by name, what each remembers
  std::optional<int64_t> data_samples;      // nullopt: the checkpoint does not say
  std::optional<int64_t> global_batch;      // samples of a step
  // Where the run is in the line of samples; nullopt: the checkpoint does not say.
  std::optional<data::DataPosition> position = {};
  int64_t length_group = 0;      // of group_by_length; 0: there is none
  std::string data_digest = {};  // what the files of `data` hold; empty: unknown
  // What was due after the step and had not been done when the checkpoint was saved.
  bool evaluation_due = false;
  bool epoch_end_due = false;
  JsonMember config = JsonMember::Object();

  nlohmann::json ToJson() const;
  static StatusOr<ResumeState> Of(const dist::Checkpoint& checkpoint);
  // Of what ToJson gave.
  static bool IsFinite(const nlohmann::json& saved);
  // The step of the best checkpoint so far, where the run looks for one.
  static std::optional<int64_t> BestStep(const nlohmann::json& saved);

  // Of the last step and evaluation; the rest is a function of the step.
  static nlohmann::json StateToJson(const TrainState& state);
  void RestoreState(TrainState* to) const;

  // Refuses a run `now` on data of another size.
  Status CheckData(const ResumeState& now, const std::string& checkpoint) const;
  // Where a run `now` continues: where the checkpoint says, else where runs with the global batch
  // of the checkpoint's are after its steps.
  data::DataPosition PositionAt(int64_t step, int64_t samples_per_epoch) const;
  // A line for each change that makes the run another one than the uninterrupted one.
  std::vector<std::string> ChangesTo(const ResumeState& now) const;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_RESUME_STATE_H_
