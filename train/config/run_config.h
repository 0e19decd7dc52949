// SPDX-License-Identifier: Apache-2.0
// A run's configuration: one typed structure with defaults, read from JSON, overridden by flags.
//
//   RunConfig config;
//   TESSERA_RETURN_IF_ERROR(ReadRunConfig("run.json", &config));
//   TESSERA_RETURN_IF_ERROR(SetRunConfigField(&config, "lr", "1e-3"));   // a flag's text
//   config.batch_size = 4;
//   TESSERA_RETURN_IF_ERROR(config.Validate());
//
// It is made of a struct per concern (data_config.h, model_config.h, ...), whose tables declare
// each key once: flags, files, help, the tables of docs/cli.md, checks, what a resumed run may
// change and what an evaluation takes follow from that. Keys of what a run chooses by name, such as
// an optimizer or a task, stand with that (OptionPart); their values are in `options`:
//
//   config.optimizer = "sgd";
//   config.options["momentum"] = 0.8;                 // with nlohmann/json.hpp
//   TESSERA_ASSIGN_OR_RETURN(const auto options, config.Part<optim::SgdOptions>());
//
// An unknown key is an error that suggests the nearest known one; names that other systems use for
// the same thing are understood. A key that is set and means nothing to the run is refused with the
// reason.
#ifndef TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_member.h"
#include "base/options_fwd.h"
#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/schedule.h"
#include "dist/store/zero_options.h"
#include "nlohmann/json_fwd.hpp"
#include "optim/update_rule.h"
#include "train/config/data_config.h"
#include "train/config/device_config.h"
#include "train/config/fine_tuning_config.h"
#include "train/config/model_config.h"
#include "train/config/optimizer_config.h"
#include "train/config/parallel_config.h"
#include "train/config/precision_config.h"
#include "train/config/report_config.h"
#include "train/config/steps_config.h"
#include "train/config/zero_config.h"

namespace tessera {
class Option;
struct OptionValue;
}  // namespace tessera

namespace tessera::train {

// The options of something that a run chooses by name.
struct OptionPart {
  std::string key;   // what chooses it: "optimizer"; "": it is always there
  std::string name;  // "sgd"
  const OptionTable* table;
};
// All of them, of each key by name. Throws Error where two belong to one choice.
std::vector<OptionPart> OptionParts();
struct OptionPartRegistration {
  explicit OptionPartRegistration(const OptionPart& part);
};

struct RunConfig : DataConfig,
                   ModelConfig,
                   FineTuningConfig,
                   StepsConfig,
                   OptimizerConfig,
                   PrecisionConfig,
                   LossScalingConfig,
                   DeviceConfig,
                   ReportConfig,
                   ParallelConfig,
                   ZeroConfig {
  // Of the chosen parts: what differs from their defaults, by key.
  JsonMember options = JsonMember::Object();
  // Keys that a file or a flag gave, whatever their value.
  std::set<std::string> given = {};

  // Of all of the above.
  static const OptionTable& Table();

  // The options S of a chosen part.
  template <typename S>
  StatusOr<S> Part() const {
    S part;
    TESSERA_RETURN_IF_ERROR(ReadPart(S::Table(), &part));
    return part;
  }

  // A key's value, null where it has none.
  nlohmann::json Get(std::string_view key) const;
  bool IsSet(std::string_view key) const;
  // Whether a key means something to this run; else why not: "needs zero 3 (it is 1)".
  Status Applies(std::string_view key) const;
  // Back to its default.
  void Unset(std::string_view key);

  // Ranges, and settings that exclude one another; names the key. Tasks' keys are checked once the
  // task is known.
  Status Validate() const;
  // Whether the settings fit a run of so many ranks.
  Status ValidateFor(int world_size) const;
  // Every key that applies with its value, as it is saved with the run.
  nlohmann::ordered_json ToJson() const;
  // What was set or differs from its default, aligned, a line each.
  std::string Describe() const;

  int64_t accumulation_steps() const { return gradient_accumulation_steps; }
  dist::MeshSizes mesh_sizes() const;
  // Of a run with pp > 1.
  StatusOr<dist::ScheduleKind> pipeline_schedule() const;
  dist::PipelineShape pipeline_shape() const;
  StatusOr<std::shared_ptr<const optim::UpdateRule>> update_rule() const;
  // What its parameter store does.
  StatusOr<dist::ZeroOptions> zero_options() const;

 private:
  Status CheckPartOptions() const;
  Status CheckEnvironment(int world_size) const;
  Status ReadPart(const OptionTable& table, void* part) const;
  bool Holds(const OptionValue& value) const;
  StatusOr<const Option*> FindInChosenParts(std::string_view key, OptionValue* wanted) const;
};

// What is known of a key, by any of its names: of the run's own tables, then of the parts' (of
// several that share it, the first). nullptr where there is none.
const Option* FindRunConfigKey(std::string_view name);
// Every key once, in the order of the tables; parts' after the run's own.
std::vector<const Option*> RunConfigKeys();

// Overrides a key, by any of its names. `where` is what messages call it.
Status SetRunConfigKey(RunConfig* config, std::string_view name, const nlohmann::json& value,
                       const std::string& where);
Status SetRunConfigField(RunConfig* config, std::string_view name, const std::string& text);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_
