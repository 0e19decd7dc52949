// DeepSpeed's optimizer and scheduler.
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "train/config/deepspeed_sections.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What a parameter that is not given is to its constructor, which "auto" leaves to Tessera.
void Default(const ForeignKeys& params, const char* theirs, const char* ours, const Json& value,
             Json* keys) {
  if (!params.Has(theirs)) (*keys)[ours] = value;
}

void TranslateAdam(ForeignKeys& params, bool always_decoupled, Json* keys) {
  const bool decoupled = params.Bool("adam_w_mode").value_or(true);
  (*keys)["optimizer"] = decoupled || always_decoupled ? "adamw" : "adam";
  if (always_decoupled && !decoupled) {
    params.Fail("adam_w_mode", "is false, but the type is AdamW");
  }
  (void)params.Bool("torch_adam");  // two implementations of one optimizer
  const std::optional<std::vector<double>> betas = params.Numbers("betas");
  if (betas && betas->size() != 2) params.Fail("betas", "must be two numbers");
  Put(keys, "betas", betas);
  Put(keys, "eps", params.Number("eps", 0));
  Default(params, "betas", "betas", {0.9, 0.999}, keys);
  Default(params, "eps", "eps", 1e-8, keys);
  params.OnlyIf("bias_correction", true, "Adam corrects its moments");
  params.OnlyIf("amsgrad", false, "there is no AMSGrad");
}

void TranslateSgd(ForeignKeys& params, Json* keys) {
  (*keys)["optimizer"] = "sgd";
  Put(keys, "momentum", params.Number("momentum", 0));
  Default(params, "momentum", "momentum", 0.0, keys);
  params.OnlyIf("dampening", 0, "momentum is not damped");
  params.OnlyIf("nesterov", false, "momentum is not Nesterov's");
}

// The warm-up of all three schedules. DeepSpeed's own default is logarithmic.
void TranslateWarmup(ForeignKeys& params, const char* least, Json* keys) {
  const std::string type = params.String("warmup_type").value_or("log");
  if (type != "linear") {
    params.Fail("warmup_type",
                type == "log" ? "is 'log' (DeepSpeed's default): the rate then rises with the "
                                "logarithm of the step, but Tessera's warm-up is linear; set it "
                                "to 'linear'"
                              : "must be 'linear'");
  }
  if (params.Number(least, 0).value_or(0) != 0) {
    params.Fail(least, "is not 0, but Tessera's warm-up begins at 0");
  }
  const std::optional<int64_t> steps = params.Integer("warmup_num_steps", 1);
  if (steps) (*keys)["warmup_steps"] = *steps;
  Default(params, "warmup_num_steps", "warmup_steps", 1000, keys);
  params.OnlyIf("last_batch_iteration", -1, "a resumed run continues at its step");
}

}  // namespace

void TranslateOptimizer(ForeignKeys& ds, Json* keys) {
  const bool given = ds.Has("optimizer");
  ForeignKeys optimizer = ds.Section("optimizer");
  const std::optional<std::string> type = optimizer.String("type");
  ForeignKeys params = optimizer.Section("params");
  optimizer.OnlyIf("legacy_fusion", false, "there is one implementation");
  optimizer.Finish();
  if (!type) {
    if (given && !optimizer.Has("type")) ds.Fail("optimizer", "has no type");
    params.Finish();
    return;
  }
  const std::string name = LowerCase(*type);
  if (name == "adam" || name == "adamw") {
    TranslateAdam(params, name == "adamw", keys);
  } else if (name == "sgd") {
    TranslateSgd(params, keys);
  } else {
    optimizer.Fail("type", Concat("is '", *type, "', which Tessera does not have; use Adam, AdamW ",
                                  "or SGD"));
    return;
  }
  Put(keys, "lr", params.Number("lr", 0));
  Put(keys, "weight_decay", params.Number("weight_decay", 0));
  Default(params, "lr", "lr", 1e-3, keys);
  Default(params, "weight_decay", "weight_decay", 0.0, keys);
  params.Refuse("max_grad_norm", "clipping is set by 'gradient_clipping'");
  params.Finish();
}

void TranslateScheduler(ForeignKeys& ds, Json* keys) {
  const bool given = ds.Has("scheduler");
  ForeignKeys scheduler = ds.Section("scheduler");
  const std::optional<std::string> type = scheduler.String("type");
  ForeignKeys params = scheduler.Section("params");
  scheduler.Finish();
  if (!type) {
    if (given && !scheduler.Has("type")) ds.Fail("scheduler", "has no type");
    params.Finish();
    return;
  }
  if (*type == "WarmupLR" || *type == "WarmupDecayLR") {
    const bool decays = *type == "WarmupDecayLR";
    (*keys)["lr_schedule"] = decays ? "linear" : "constant";
    TranslateWarmup(params, "warmup_min_lr", keys);
    Put(keys, "lr", params.Number("warmup_max_lr", 0));
    if (decays) {
      Default(params, "warmup_max_lr", "lr", 1e-3, keys);
      (*keys)["min_lr"] = 0.0;
    }
  } else if (*type == "WarmupCosineLR") {
    (*keys)["lr_schedule"] = "cosine";
    TranslateWarmup(params, "warmup_min_ratio", keys);
    const double ratio = params.Number("cos_min_ratio", 0).value_or(1e-4);
    if (ratio > 1) params.Fail("cos_min_ratio", "must be at most 1");
    if (keys->contains("lr")) {
      (*keys)["min_lr"] = ratio * (*keys)["lr"].get<double>();
    } else {
      params.Fail("cos_min_ratio", "is a share of the optimizer's lr, which is not given");
    }
  } else {
    const char* why = *type == "LRRangeTest" || *type == "OneCycle"
                          ? ", whose shape Tessera's schedules do not have"
                          : ", which is not known";
    scheduler.Fail(
        "type", Concat("is '", *type, "'", why, "; use WarmupLR, WarmupDecayLR or WarmupCosineLR"));
    return;
  }
  if (*type != "WarmupLR") {
    if (!params.Has("total_num_steps")) params.Fail("total_num_steps", "is missing");
    Put(keys, "max_steps", params.Integer("total_num_steps", 1));
  }
  params.Finish();
}

}  // namespace tessera::train
