// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/deepspeed_config.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "train/foreign/deepspeed_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// --- Batches -------------------------------------------------------------------------------------

// train_batch_size = micro-batch * accumulation * ranks: of the three, two give the third. Flags
// win over the file, which wins over the run's own file.
void TranslateBatch(ForeignKeys& ds, int64_t ranks, const RunBatch& run) {
  const auto chosen = [&](const char* key, const std::optional<int64_t>& flag,
                          const std::optional<int64_t>& file) {
    const std::optional<int64_t> own = ds.Integer(key, 1);
    return flag ? flag : own ? own : file;
  };
  const std::optional<int64_t> train = ds.Integer("train_batch_size", 1);
  std::optional<int64_t> micro =
      chosen("train_micro_batch_size_per_gpu", run.flag_micro, run.file_micro);
  std::optional<int64_t> steps =
      chosen("gradient_accumulation_steps", run.flag_steps, run.file_steps);
  const auto ranks_by = [&](int64_t a, int64_t b) {
    return static_cast<double>(ranks) * static_cast<double>(a) * static_cast<double>(b);
  };
  if (train && micro && steps && static_cast<double>(*train) != ranks_by(*micro, *steps)) {
    ds.Fail("train_batch_size",
            Concat("is ", *train, ", but train_micro_batch_size_per_gpu * ",
                   "gradient_accumulation_steps * ranks is ", *micro, " * ", *steps, " * ", ranks));
  }
  if (train && !(micro && steps)) {
    const double known = ranks_by(micro.value_or(1), steps.value_or(1));
    if (std::fmod(static_cast<double>(*train), known) != 0) {
      const char* other = micro ? " of train_micro_batch_size_per_gpu * ranks"
                                : " of gradient_accumulation_steps * ranks";
      ds.Fail("train_batch_size", Concat("is ", *train, ", which is not a multiple",
                                         micro || steps ? other : " of the ranks", ", ", known));
    }
    (micro ? steps : micro) = static_cast<int64_t>(static_cast<double>(*train) / known);
  }
  // DeepSpeed's own accumulation is 1 where nothing is said; "auto" is the run's.
  if (micro && !steps && !ds.Has("gradient_accumulation_steps")) steps = 1;
  // What the file itself says is its value, beside which flags have theirs.
  const std::optional<int64_t> own_micro = ds.Integer("train_micro_batch_size_per_gpu", 1);
  const std::optional<int64_t> own_steps = ds.Integer("gradient_accumulation_steps", 1);
  ds.Put("batch_size", own_micro ? own_micro : micro);
  ds.Put("gradient_accumulation_steps", own_steps ? own_steps : steps);
}

// --- Number formats ------------------------------------------------------------------------------

void TranslateLossScale(ForeignKeys& ds) {
  const std::optional<double> scale = ds.Number("fp16.loss_scale", 0);
  const std::optional<int64_t> power = ds.Integer("fp16.initial_scale_power", 0);
  const std::optional<int64_t> window = ds.Integer("fp16.loss_scale_window", 1);
  const std::optional<int64_t> hysteresis = ds.Integer("fp16.hysteresis", 1);
  const std::optional<double> least = ds.Number("fp16.min_loss_scale", 0);
  if (scale && *scale > 0) {
    for (const auto& [key, given] : {std::pair{"fp16.loss_scale_window", window.has_value()},
                                     {"fp16.hysteresis", hysteresis.has_value()},
                                     {"fp16.min_loss_scale", least.has_value()},
                                     {"fp16.initial_scale_power", power.has_value()}}) {
      if (given) {
        ds.Fail(key, Concat("belongs to dynamic loss scaling, but loss_scale is fixed at ", *scale,
                            "; remove it, or set loss_scale to 0"));
      }
    }
    ds.Put("loss_scale", scale);
  } else {
    ds.Ignore("fp16.loss_scale", "0 asks for dynamic loss scaling, which is the default");
  }
  if (power && *power > 64) return ds.Fail("fp16.initial_scale_power", "must be at most 64");
  ds.Put("growth_interval", window);
  // Of stage 0 the optimizers that hold half-precision parameters know no hysteresis.
  const bool is_fixed = scale.value_or(0) > 0;
  const bool is_on = ds.Has("fp16.enabled") && ds.Bool("fp16.enabled").value_or(true);
  if (is_on && !is_fixed && ds.Integer("zero_optimization.stage", 0).value_or(0) == 0) {
    if (hysteresis) ds.Ignore("fp16.hysteresis", "at stage 0 each overflow halves the scale");
    ds.Put("hysteresis", Json(1));
  } else {
    ds.Put("hysteresis", hysteresis);
  }
  // A least scale of 0 is no bound; scales are positive here.
  if (least && *least > 0) ds.Put("min_scale", least);
  if (power) {
    const double first = std::ldexp(1.0, static_cast<int>(*power));
    ds.Put("initial_scale", Json(first));
    if (first > 4294967296.0) ds.Put("max_scale", Json(first));
  }
}

void TranslateDType(ForeignKeys& ds) {
  TranslateLossScale(ds);
  const std::optional<bool> fp16 = ds.Bool("fp16.enabled");
  if (ds.Has("bf16") && ds.Has("bfloat16")) {
    ds.Fail("bfloat16", "is another name of 'bf16'; give one of them");
  }
  const char* name = ds.Has("bfloat16") ? "bfloat16" : "bf16";
  const std::optional<bool> bf16 = ds.Bool(Concat(name, ".enabled"));
  if (fp16.value_or(false) && bf16.value_or(false)) {
    ds.Fail(name, "and 'fp16' are both enabled; a run has one dtype");
  }
  if (fp16.value_or(false)) {
    ds.Put("dtype", Json("float16"));
  } else if (bf16.value_or(false)) {
    ds.Put("dtype", Json("bfloat16"));
  } else if (fp16 || bf16) {
    ds.Put("dtype", Json("float32"));
  }
  const std::optional<std::string> products = ds.String("torch_autocast.dtype");
  if (ds.Bool("torch_autocast.enabled").value_or(false)) {
    const std::string wanted = products.value_or("bfloat16");
    ds.Put("autocast", Json(wanted == "fp16" || wanted == "float16" ? "float16" : "bfloat16"));
  } else {
    ds.IgnoreSection("torch_autocast", "it is off");
  }
}

// --- The rest ------------------------------------------------------------------------------------

void TranslateActivationCheckpointing(ForeignKeys& ds) {
  const std::string section = "activation_checkpointing.";
  const bool partition = ds.Bool(section + "partition_activations").value_or(false);
  const bool offload = ds.Bool(section + "cpu_checkpointing").value_or(false);
  const Json* contiguous = ds.Find(section + "contiguous_memory_optimization");
  if (contiguous != nullptr && *contiguous == true && !partition) {
    ds.Fail(section + "contiguous_memory_optimization", "needs partition_activations");
  }
  if (partition || offload) ds.Put("checkpoint_activations", Json(true));
  if (partition) {
    ds.Put("partition_activations", Json(true));
  } else {
    ds.Ignore(section + "partition_activations", "it is off");
  }
  if (offload) {
    ds.Put("offload_activations", Json(true));
  } else {
    ds.Ignore(section + "cpu_checkpointing", "it is off");
  }
}

// AutoEP is off unless it is enabled.
void TranslateExperts(ForeignKeys& ds) {
  const std::optional<int64_t> ranks = ds.Integer("expert_parallel.autoep_size", 1);
  if (ds.Bool("expert_parallel.enabled").value_or(false)) {
    ds.Put("ep", ranks.value_or(1));
  } else {
    ds.IgnoreSection("expert_parallel", "it is off");
  }
}

void TranslateMonitors(ForeignKeys& ds) {
  Json forms = Json::array();
  for (const auto& [key, form] :
       {std::pair{"tensorboard.enabled", "tensorboard"}, {"csv_monitor.enabled", "csv"}}) {
    if (ds.Bool(key).value_or(false)) {
      forms.push_back(form);
    } else {
      ds.Ignore(key, "it is off");
    }
  }
  if (!forms.empty()) ds.Put("report_to", forms);
}

void TranslateCommunication(ForeignKeys& ds) {
  const std::optional<std::string> travels = ds.String("communication_data_type");
  if (!travels) return;
  if (ds.keys().value("zero", 0) > 0) {
    ds.Put("communication_dtype", travels);
  } else if (*travels == "fp32") {
    ds.Ignore("communication_data_type", "sums go through float32");
  } else {
    ds.Fail("communication_data_type",
            Concat("is '", *travels, "', which needs ZeRO stage 1 to 3"));
  }
}

}  // namespace

Translation TranslateDeepSpeed(const Json& json, const std::string& source, int world_size,
                               const RunBatch& run) {
  ForeignKeys ds(json, source, DeepSpeedKeys());
  TranslateBatch(ds, world_size, run);
  TranslateDType(ds);
  TranslateOptimizer(ds);
  TranslateScheduler(ds);
  TranslateZero(ds);
  TranslateActivationCheckpointing(ds);
  TranslateCommunication(ds);
  TranslateExperts(ds);
  TranslateMonitors(ds);
  if (!ds.Has("gradient_clipping") && !ds.keys().contains("max_grad_norm")) {
    ds.defaults()["max_grad_norm"] = 0.0;
  }
  if (!ds.Has("scheduler")) ds.defaults()["lr_schedule"] = "constant";
  if (!ds.keys().contains("zero")) ds.defaults()["zero"] = 0;
  return std::move(ds).Finish();
}

}  // namespace tessera::train
