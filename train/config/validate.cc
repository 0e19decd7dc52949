// SPDX-License-Identifier: Apache-2.0
// Which settings fit together.
#include <algorithm>
#include <cmath>

#include "base/options.h"
#include "core/dtype.h"
#include "dist/mesh/mesh.h"
#include "nlohmann/json.hpp"
#include "optim/optimizer_kind.h"
#include "train/config/comma_list.h"
#include "train/config/run_config.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// What is set means something to the run.
Status CheckMeaning(const RunConfig& config) {
  for (const Option* option : RunConfigKeys()) {
    if (!config.IsSet(option->key) || option->IsNeutral(config.Get(option->key))) continue;
    const Status applies = config.Applies(option->key);
    if (!applies.ok()) {
      return InvalidArgument(option->key, " is set, which ", Message(applies));
    }
  }
  return OkStatus();
}

}  // namespace

Status RunConfig::Validate() const {
  TESSERA_RETURN_IF_ERROR(Table().Check(this));
  TESSERA_RETURN_IF_ERROR(CheckPartOptions());
  TESSERA_RETURN_IF_ERROR(CheckMeaning(*this));
  TESSERA_RETURN_IF_ERROR(Overrides().status());
  if (!grad_dtype.empty() && grad_dtype != "float32" && grad_dtype != dtype) {
    return InvalidArgument("grad_dtype '", grad_dtype, "' must be float32 or the dtype, '", dtype,
                           "'");
  }
  TESSERA_RETURN_IF_ERROR(optim::CheckGradScalerOptions(scaler_options()));
  TESSERA_RETURN_IF_ERROR(update_rule().status());
  for (const auto& [key, steps] : {std::pair{"warmup_steps", warmup_steps},
                                   {"lr_decay_steps", lr_decay_steps},
                                   {"log_interval", log_interval},
                                   {"eval_interval", eval_interval},
                                   {"save_interval", save_interval}}) {
    if (steps < 1 || steps == std::floor(steps)) continue;
    return InvalidArgument(key, " is ", steps, ", expected whole steps or a share of them below 1");
  }
  if (pp > 1) {
    TESSERA_ASSIGN_OR_RETURN(const dist::ScheduleKind kind, pipeline_schedule());
    TESSERA_RETURN_IF_ERROR(dist::CheckSchedule(kind, pipeline_shape()));
  }
  TESSERA_ASSIGN_OR_RETURN(const dist::ZeroOptions zero, zero_options());
  if (zero.stage == 3 && prefix_projection) {
    return InvalidArgument(
        "prefix_projection does not go with zero 3: the layers that make a prefix are used by all "
        "others; take zero 2, or a prefix without it");
  }
  if (zero.stage == 3 && pipeline_shape().chunks_per_rank > 1) {
    return InvalidArgument("zero 3 shards one chunk per rank; num_model_chunks is ",
                           pipeline_shape().chunks_per_rank);
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const optim::UpdateRule>> RunConfig::update_rule() const {
  TESSERA_ASSIGN_OR_RETURN(const optim::OptimizerKind* kind, optim::FindOptimizerKind(optimizer));
  Json own = Json::object();
  for (const Option& option : kind->options->options()) {
    if (options->contains(option.key)) own[option.key] = options->at(option.key);
  }
  return kind->Configure(own, optimizer);
}

StatusOr<dist::ZeroOptions> RunConfig::zero_options() const {
  dist::ZeroOptions options;
  options.stage = static_cast<int>(zero);
  options.bucket_cap_mb = bucket_cap_mb;
  options.deterministic = deterministic;
  options.find_unused_parameters = find_unused_parameters;
  options.overlap = overlap_comm;
  options.static_graph = static_graph;
  options.check_reduction = check_reduction;
  options.gradient_as_bucket_view = gradient_as_bucket_view;
  if (!communication_dtype.empty()) options.communication_dtype = ParseDType(communication_dtype);
  options.auto_wrap_classes = SplitAtCommas(auto_wrap_classes);
  options.auto_wrap_min_params = auto_wrap_min_params;
  TESSERA_ASSIGN_OR_RETURN(options.backward_prefetch,
                           dist::ParseBackwardPrefetch(backward_prefetch));
  options.forward_prefetch = forward_prefetch;
  options.limit_all_gathers = limit_all_gathers;
  options.prefetch_elements = prefetch_elements;
  options.max_live_elements = max_live_elements;
  options.persistence_threshold = persistence_threshold;
  options.reshard_after_forward = reshard_after_forward;
  options.offload_optimizer = cpu_offload;
  options.offload_fraction = offload_fraction;
  options.offload_parameters = offload_parameters;
  TESSERA_RETURN_IF_ERROR(options.Validate());
  return options;
}

StatusOr<dist::ScheduleKind> RunConfig::pipeline_schedule() const {
  return dist::ParseSchedule(schedule);
}

dist::MeshSizes RunConfig::mesh_sizes() const {
  return {.tp = static_cast<int>(tp),
          .pp = static_cast<int>(pp),
          .ep = static_cast<int>(ep),
          .cp = static_cast<int>(cp)};
}

dist::PipelineShape RunConfig::pipeline_shape() const {
  const auto kind = pipeline_schedule();
  const bool interleaves = kind.ok() && *kind == dist::ScheduleKind::kInterleaved && pp > 1;
  return {.stages = static_cast<int>(pp),
          .chunks_per_rank = static_cast<int>(num_model_chunks.value_or(interleaves ? 2 : 1)),
          .micro_batches = static_cast<int>(accumulation_steps())};
}

// Of `env_type`, which is what FlagAI's four names mean. A DeepSpeed file gives `zero`, too.
Status RunConfig::CheckEnvironment(int world_size) const {
  const auto excluded = [&](std::string_view what) {
    return InvalidArgument("env_type '", env_type, "' excludes ", what);
  };
  const bool has_zero = zero > 0 || given.count("zero") > 0;
  if (env_type == "single" && world_size > 1) return excluded("more than one rank");
  if (env_type == "ddp" && zero > 0) {
    return excluded(Concat("zero, which is ", zero, " (a DeepSpeed file may say so)"));
  }
  if ((env_type == "ddp" || env_type == "zero") && tp > 1) return excluded("tp");
  if (env_type == "ddp" && pp > 1) return excluded("pp");
  if (env_type == "zero" || env_type == "zero+tp") {
    if (!has_zero) {
      return InvalidArgument("env_type '", env_type,
                             "' needs zero (1, 2 or 3) or a DeepSpeed file that says the stage");
    }
    if (env_type == "zero+tp" && tp == 1) {
      return InvalidArgument("env_type '", env_type, "' needs tp above 1");
    }
  }
  return OkStatus();
}

Status RunConfig::ValidateFor(int world_size) const {
  TESSERA_RETURN_IF_ERROR(dist::CheckMesh(mesh_sizes(), world_size));
  TESSERA_RETURN_IF_ERROR(CheckEnvironment(world_size));
  const int64_t dp = world_size / (tp * pp);
  if (deterministic && (!dist::IsPowerOfTwo(dp) || !dist::IsPowerOfTwo(accumulation_steps()))) {
    return InvalidArgument("deterministic needs powers of two: there are ", dp,
                           " data-parallel ranks and ", accumulation_steps(),
                           " micro-batches (gradient_accumulation_steps)");
  }
  return OkStatus();
}

// A value is JSON (12, 0.1, true, [1, 2]), or else text.
StatusOr<Json> ModelConfig::Overrides() const {
  Json overrides = Json::object();
  for (size_t begin = 0; begin < config_overrides.size();) {
    size_t end = begin;
    int depth = 0;  // of brackets: a list has commas of its own
    for (; end < config_overrides.size() && (depth > 0 || config_overrides[end] != ','); ++end) {
      depth += config_overrides[end] == '[' ? 1 : config_overrides[end] == ']' ? -1 : 0;
    }
    const std::string part = config_overrides.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return InvalidArgument("config_overrides: '", part, "' is not of the form key=value");
    }
    const std::string text = part.substr(equals + 1);
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    overrides[part.substr(0, equals)] = value.is_discarded() ? Json(text) : value;
  }
  return overrides;
}

int64_t StepsOf(double steps, int64_t total) {
  return static_cast<int64_t>(steps < 1 ? std::ceil(steps * static_cast<double>(total)) : steps);
}

optim::ScheduleConfig OptimizerConfig::schedule_of(int64_t total) const {
  const std::vector<std::string>& countings = optim::CountingNames();
  const auto counting = static_cast<optim::ScheduleCounting>(
      std::find(countings.begin(), countings.end(), schedule_counting) - countings.begin());
  const double share = warmup_steps * static_cast<double>(total);
  const double rounded =
      counting == optim::ScheduleCounting::kTessera ? std::ceil(share) : std::floor(share);
  const int64_t end = schedule_steps.value_or(total);
  return {.kind = lr_schedule,
          .lr = lr,
          .min_lr = final_lr(),
          .warmup_steps = static_cast<int64_t>(warmup_steps < 1 ? rounded : warmup_steps),
          .total_steps = end,
          .warmup_type = warmup_type,
          .warmup_min_lr = warmup_min_lr,
          .offset = schedule_offset,
          .counting = counting,
          .cycles = lr_cycles,
          .power = lr_power,
          .timescale = lr_timescale,
          .decay_steps = StepsOf(lr_decay_steps, end),
          .decay_type = lr_decay_type};
}

optim::GradScalerOptions LossScalingConfig::scaler_options() const {
  return {.dynamic = !loss_scale,
          .initial_scale = loss_scale.value_or(initial_scale),
          .min_scale = loss_scale ? std::min(min_scale, *loss_scale) : min_scale,
          .growth_factor = growth_factor,
          .backoff_factor = backoff_factor,
          .growth_interval = growth_interval,
          .hysteresis = hysteresis,
          .max_scale = loss_scale ? std::max(max_scale, *loss_scale) : max_scale};
}

}  // namespace tessera::train
