// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's ZeRO and its off-loading.
#include <optional>
#include <string>

#include "nlohmann/json.hpp"
#include "train/foreign/deepspeed_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

const std::string& Zero() {
  static const auto* section = new std::string("zero_optimization.");
  return *section;
}

// The device of a section of off-loading: "cpu", "none", or "" where nothing is said.
std::string DeviceOf(const std::string& section, const char* what, ForeignKeys& ds) {
  const std::string key = Concat(Zero(), section, ".device");
  const bool given = ds.Has(Zero() + section);
  const std::string device = ds.String(key).value_or(given && !ds.Has(key) ? "cpu" : "");
  if (device.empty() || device == "cpu" || device == "none") return device;
  ds.Fail(key, Concat("is '", device, "'; ", what, " can lie in host memory ('cpu')"));
  return "";
}

void TranslateOptimizerOffload(int64_t stage, ForeignKeys& ds) {
  const std::string flag = Zero() + "cpu_offload";
  std::optional<bool> offload = ds.Bool(flag);
  const std::string device = DeviceOf("offload_optimizer", "states", ds);
  if (!device.empty() && offload && *offload != (device == "cpu")) {
    ds.Fail(flag, "and 'offload_optimizer' contradict each other");
  }
  if (!device.empty()) offload = device == "cpu";
  if (offload.value_or(false) && stage == 0) {
    ds.Fail(device.empty() ? flag : Zero() + "offload_optimizer",
            "needs stage 1, 2 or 3; the stage is 0");
  }
  ds.Put("cpu_offload", offload);
  const std::optional<double> ratio = ds.Number(Zero() + "offload_optimizer.ratio", 0);
  if (offload.value_or(false)) ds.Put("offload_fraction", ratio);
}

void TranslateParameterOffload(int64_t stage, ForeignKeys& ds) {
  bool offload = DeviceOf("offload_param", "parameters", ds) == "cpu";
  if (offload && stage < 3) {
    ds.Fail(Zero() + "offload_param", Concat("needs stage 3; the stage is ", stage));
  }
  for (const char* name : {"cpu_offload_params", "cpu_offload_param"}) {
    const bool asked = ds.Bool(Zero() + name).value_or(false);
    if (asked && stage < 3) ds.Ignore(Zero() + name, "the stage is below 3");
    offload = offload || (asked && stage == 3);
  }
  if (offload) ds.Put("offload_parameters", Json(true));
}

// Of a stage below 3 they mean nothing, in DeepSpeed neither.
void TranslateStage3(int64_t stage, ForeignKeys& ds) {
  const std::string prefetch = Zero() + "stage3_prefetch_bucket_size";
  const std::string live = Zero() + "stage3_max_live_parameters";
  const std::string persistence = Zero() + "stage3_param_persistence_threshold";
  if (stage < 3) {
    for (const std::string& key : {prefetch, live, persistence}) {
      ds.Ignore(key, "the stage is below 3");
    }
    return;
  }
  const std::optional<int64_t> ahead = ds.Integer(prefetch, 0);
  ds.Put("prefetch_elements", ahead);
  if (ahead) ds.Put("limit_all_gathers", Json(false));
  ds.Put("max_live_elements", ds.Integer(live, 0));
  ds.Put("persistence_threshold", ds.Integer(persistence, 0));
}

}  // namespace

void TranslateZero(ForeignKeys& ds) {
  const int64_t stage = ds.Integer(Zero() + "stage", 0).value_or(0);
  if (stage > 3) {
    return ds.Fail(Zero() + "stage", Concat("must be 0, 1, 2 or 3, not ", stage));
  }
  if (ds.Has("zero_optimization")) ds.Put("zero", Json(stage));
  const std::optional<bool> contiguous = ds.Bool(Zero() + "contiguous_gradients");
  if (stage == 0) {
    ds.Put("gradient_as_bucket_view", contiguous);
  } else {
    ds.Ignore(Zero() + "contiguous_gradients", "gradients of a stage above 0 lie in buckets");
  }
  const std::string bucket = Zero() + "reduce_bucket_size";
  const std::optional<int64_t> elements = ds.Integer(bucket, 1);
  if (stage == 3) {
    ds.Ignore(bucket, "a bucket of stage 3 is a block of the model");
  } else if (elements) {  // of float32
    ds.Put("bucket_cap_mb", Json(static_cast<double>(*elements) * 4 / 1048576));
  }
  TranslateOptimizerOffload(stage, ds);
  TranslateParameterOffload(stage, ds);
  TranslateStage3(stage, ds);
}

}  // namespace tessera::train
