// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's optimizer and scheduler.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "nlohmann/json.hpp"
#include "train/foreign/deepspeed_keys.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

std::string Param(const std::string& name) { return "optimizer.params." + name; }
std::string SchedulerParam(const std::string& name) { return "scheduler.params." + name; }

// A parameter that is not given is what it is to its constructor there; "auto" is the run's own.
void PutOr(const std::string& key, const std::string& ours, const std::optional<double>& value,
           double usual, ForeignKeys& ds) {
  ds.Put(ours, value);
  if (!ds.Has(key)) ds.Put(ours, Json(usual));
}

void TranslateBetas(std::vector<double> usual, ForeignKeys& ds) {
  const std::optional<std::vector<double>> betas = ds.Numbers(Param("betas"));
  if (betas && betas->size() != 2) ds.Fail(Param("betas"), "must be two numbers");
  ds.Put("betas", betas);
  if (!ds.Has(Param("betas"))) ds.Put("betas", Json(std::move(usual)));
}

void TranslateAdam(bool always_decoupled, ForeignKeys& ds) {
  const bool decoupled = ds.Bool(Param("adam_w_mode")).value_or(true);
  ds.Put("optimizer", Json(decoupled || always_decoupled ? "adamw" : "adam"));
  if (always_decoupled && !decoupled) {
    ds.Fail(Param("adam_w_mode"), "is false, but the type is AdamW");
  }
  TranslateBetas({0.9, 0.999}, ds);
  PutOr(Param("eps"), "eps", ds.Number(Param("eps"), 0), 1e-8, ds);
}

void TranslateSgd(ForeignKeys& ds) {
  ds.Put("optimizer", Json("sgd"));
  PutOr(Param("momentum"), "momentum", ds.Number(Param("momentum"), 0), 0, ds);
  ds.Put("nesterov", ds.Bool(Param("nesterov")));
}

void TranslateLion(ForeignKeys& ds) {
  ds.Put("optimizer", Json("lion"));
  TranslateBetas({0.9, 0.99}, ds);
}

// DeepSpeed's schedulers are two steps behind the run: both the step before the first and the
// first's end are still at the least rate.
void TranslateWarmup(const std::string& least, double scale, ForeignKeys& ds) {
  const std::string type = ds.String(SchedulerParam("warmup_type")).value_or("log");
  if (type != "log" && type != "linear") {
    ds.Fail(SchedulerParam("warmup_type"), Concat("is '", type, "', expected log or linear"));
    return;
  }
  ds.Put("warmup_type", Json(type));
  const std::optional<double> first = ds.Number(SchedulerParam(least), 0);
  ds.Put("warmup_min_lr", Json(first.value_or(0) * scale));
  const std::string count = SchedulerParam("warmup_num_steps");
  const std::optional<int64_t> steps = ds.Integer(count, 0);
  if (steps || !ds.Has(count)) {
    ds.Put("warmup_steps", Json(std::max<int64_t>(2, steps.value_or(1000))));
  }
  ds.Put("schedule_offset",
         Json(ds.Integer(SchedulerParam("last_batch_iteration"), -1).value_or(-1) - 1));
}

void TranslateDecay(const std::string& type, ForeignKeys& ds) {
  if (type == "WarmupDecayLR") {
    ds.Put("lr_schedule", Json("linear"));
    ds.Put("min_lr", ds.keys().value("warmup_min_lr", Json(0.0)));
  } else {
    ds.Put("lr_schedule", Json("cosine"));
  }
  const std::string total = SchedulerParam("total_num_steps");
  if (!ds.Has(total)) return ds.Fail(total, "is missing");
  const std::optional<int64_t> steps = ds.Integer(total, 1);
  ds.Put("schedule_steps", steps);
  if (steps) ds.defaults()["max_steps"] = *steps;
}

void TranslateCosine(ForeignKeys& ds) {
  const double ratio = ds.Number(SchedulerParam("cos_min_ratio"), 0).value_or(1e-4);
  if (ratio > 1) ds.Fail(SchedulerParam("cos_min_ratio"), "must be at most 1");
  const double lr = ds.keys().value("lr", 0.0);
  if (!ds.keys().contains("lr")) {
    ds.Fail(SchedulerParam("cos_min_ratio"),
            "is a share of the optimizer's lr, which is not given");
  }
  ds.Put("min_lr", Json(ratio * lr));
  TranslateWarmup("warmup_min_ratio", lr, ds);
}

}  // namespace

void TranslateOptimizer(ForeignKeys& ds) {
  const std::optional<std::string> type = ds.String("optimizer.type");
  if (!type) {
    if (ds.Has("optimizer") && !ds.Has("optimizer.type")) ds.Fail("optimizer", "has no type");
    return ds.IgnoreSection("optimizer.params", "the optimizer is the run's own");
  }
  const std::string name = absl::AsciiStrToLower(*type);
  if (name == "adam" || name == "adamw") {
    TranslateAdam(name == "adamw", ds);
  } else if (name == "sgd") {
    TranslateSgd(ds);
  } else if (name == "lion") {
    TranslateLion(ds);
  } else {
    ds.IgnoreSection("optimizer.params", "the optimizer is refused");
    return ds.Fail("optimizer.type", Concat("is '", *type, "', which is not here as DeepSpeed has ",
                                            "it; use Adam, AdamW, Lion or SGD"));
  }
  PutOr(Param("lr"), "lr", ds.Number(Param("lr"), 0), 1e-3, ds);
  // torch.optim.AdamW decays where nothing is said; DeepSpeed's own optimizers do not.
  const Json* torchs = ds.Find(Param("torch_adam"));
  const bool decays =
      torchs != nullptr && IsTrue(*torchs) && ds.keys().value("optimizer", "") == "adamw";
  const double usual = decays ? 0.01 : 0;
  PutOr(Param("weight_decay"), "weight_decay", ds.Number(Param("weight_decay"), 0), usual, ds);
  const std::optional<double> clip = ds.Number(Param("max_grad_norm"), 0);
  if (clip && ds.keys().contains("max_grad_norm") && ds.keys()["max_grad_norm"] != *clip) {
    ds.Fail(Param("max_grad_norm"), "and 'gradient_clipping' contradict each other");
  }
  ds.Put("max_grad_norm", clip);
}

void TranslateScheduler(ForeignKeys& ds) {
  const std::optional<std::string> type = ds.String("scheduler.type");
  if (!type) {
    if (ds.Has("scheduler") && !ds.Has("scheduler.type")) ds.Fail("scheduler", "has no type");
    return ds.IgnoreSection("scheduler.params", "the schedule is the run's own");
  }
  if (*type == "WarmupLR" || *type == "WarmupDecayLR") {
    TranslateWarmup("warmup_min_lr", 1, ds);
    const std::string peak = SchedulerParam("warmup_max_lr");
    const bool decays = *type == "WarmupDecayLR";
    ds.Put("lr", ds.Number(peak, 0));
    if (decays && !ds.Has(peak)) ds.Put("lr", Json(1e-3));
    if (decays) return TranslateDecay(*type, ds);
    ds.Put("lr_schedule", Json("constant"));
  } else if (*type == "WarmupCosineLR") {
    TranslateCosine(ds);
    TranslateDecay(*type, ds);
  } else {
    const char* why = *type == "LRRangeTest" || *type == "OneCycle"
                          ? ", whose shape Tessera's schedules do not have"
                          : ", which is not known";
    ds.IgnoreSection("scheduler.params", "the scheduler is refused");
    ds.Fail("scheduler.type",
            Concat("is '", *type, "'", why, "; use WarmupLR, WarmupDecayLR or WarmupCosineLR"));
  }
}

}  // namespace tessera::train
