// A run's configuration: one typed structure with defaults, read from JSON, overridden by flags.
//
//   RunConfig config;
//   TESSERA_RETURN_IF_ERROR(ReadRunConfig("run.json", &config));
//   TESSERA_RETURN_IF_ERROR(SetRunConfigField(&config, "lr", "1e-3"));   // a flag's text
//   TESSERA_RETURN_IF_ERROR(config.Validate());
//
// One table of fields (RunConfigFields) serves the file, the flags, the help text and what is
// saved with the run. An unknown key is an error that suggests the nearest known one; names that
// other systems use for the same thing are understood (train/config/config_aliases.h).
#ifndef TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.h"
#include "dist/pipeline/schedule.h"
#include "dist/store/zero_options.h"
#include "nlohmann/json.hpp"
#include "optim/grad_scaler.h"
#include "train/config/data_config.h"
#include "train/config/parallel_config.h"

namespace tessera::train {

struct RunConfig : DataConfig, ParallelConfig {
  // What to train, to where (on what: train/config/data_config.h; on which ranks:
  // train/config/parallel_config.h).
  std::string model;             // a preset's name or a folder
  std::string config_overrides;  // "d_model=256,num_layers=3": keys of the model's configuration
  bool ignore_mismatched_sizes = false;
  std::string out;  // the run's directory

  // How long, in which steps.
  int64_t max_steps = 0;  // 0: by epochs
  double epochs = 1;
  int64_t batch_size = 8;
  int64_t gradient_accumulation_steps = 0;  // 0: num_microbatches, else 1
  int64_t num_microbatches = 0;             // the same under another name; 0: not given
  int64_t seq_len = 0;                      // 0: the model's
  bool shuffle = true;
  double time_limit = 0;  // seconds; 0: none

  // The optimizer.
  std::string optimizer = "adamw";
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;
  bool scale_parameter = false;  // each parameter's rate is scaled by its first values
  int64_t warmup_steps = 0;
  std::string lr_schedule = "cosine";
  double min_lr = -1;  // negative: 0.1 lr
  double max_grad_norm = 1;

  // The model.
  double dropout = -1;  // negative: the model's
  double neftune_noise_alpha = 0;
  bool checkpoint_activations = false;
  int64_t seed = 0;
  std::string dtype = "float32";
  std::string autocast;    // half precision of a float32 model's products; empty: none
  std::string grad_dtype;  // empty: float32 where the dtype is a half, else the dtype
  std::string device = "cpu";
  int64_t threads = 0;  // 0: all cores the process may use
  bool cuda_graph = true;

  // What is reported and kept.
  int64_t log_interval = 10;
  int64_t eval_interval = 0;  // 0: at the end
  int64_t eval_batches = 0;   // 0: all
  int64_t save_interval = 0;  // 0: at the end
  int64_t num_checkpoints = 2;

  bool async_save = false;
  bool wall_clock_breakdown = false;
  std::string profile;        // a Chrome trace; empty: none
  int64_t profile_after = 3;  // steps of this process before it
  int64_t profile_steps = 2;
  std::string log_level = "info";
  std::string log_level_replica = "error";
  bool log_on_each_node = false;

  // Loss scaling of float16 (optim/grad_scaler.h).
  double loss_scale = 0;  // 0: dynamic
  double initial_scale = 65536;
  double min_scale = 1;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 1000;
  int64_t hysteresis = 2;
  double max_scale = 4294967296;

  int64_t accumulation_steps() const;
  // Whether gradients pass through float16, so that the loss is scaled.
  bool scales_loss() const { return dtype == "float16" || autocast == "float16"; }
  optim::GradScalerOptions scaler_options() const;
  double final_lr() const { return min_lr < 0 ? 0.1 * lr : min_lr; }

  // Of a run with pp > 1.
  absl::StatusOr<dist::ScheduleKind> pipeline_schedule() const;
  dist::PipelineShape pipeline_shape() const;
  // Of a run with zero > 0.
  absl::StatusOr<dist::ZeroOptions> zero_options() const;

  // Ranges, and settings that exclude one another; names the key.
  absl::Status Validate() const;
  // The members of config_overrides, each with its value; without any, an empty object.
  absl::StatusOr<nlohmann::json> Overrides() const;
  // Whether the settings fit a run of so many ranks.
  absl::Status ValidateFor(int world_size) const;
  // Every field, resolved, as it is printed and saved with the run.
  nlohmann::ordered_json ToJson() const;
};

// One entry of the table.
struct RunConfigField {
  using Member = std::variant<int64_t RunConfig::*, double RunConfig::*, bool RunConfig::*,
                              std::string RunConfig::*, std::vector<double> RunConfig::*>;
  std::string_view name;
  Member member;
  std::string_view help;
};
const std::vector<RunConfigField>& RunConfigFields();
const RunConfigField* FindRunConfigField(std::string_view name);

// Overrides fields from a JSON object. `source` is what messages name.
absl::Status ApplyRunConfigJson(const nlohmann::json& json, const std::string& source,
                                RunConfig* config);
absl::Status ReadRunConfig(const std::string& path, RunConfig* config);
// From a flag: "1e-3", "true", "0.9,0.95".
absl::Status SetRunConfigField(RunConfig* config, std::string_view name, const std::string& text);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_RUN_CONFIG_H_
