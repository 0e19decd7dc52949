// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::optim {

const std::vector<std::string>& ScheduleNames() {
  static const auto* names =
      new std::vector<std::string>{"constant", "linear", "cosine", "inverse_sqrt"};
  return *names;
}

const std::vector<std::string>& WarmupNames() {
  static const auto* names = new std::vector<std::string>{"linear", "log"};
  return *names;
}

// Of inverse_sqrt without warm-up: Hugging Face's.
constexpr double kTimescale = 10000;

double Schedule::At(int64_t step) const {
  const double lr = config_.lr;
  const double min_lr = config_.min_lr;
  const auto s =
      static_cast<double>(std::max<int64_t>(std::max<int64_t>(step, 1) + config_.offset, 0));
  const auto warmup = static_cast<double>(config_.warmup_steps);
  const auto total = static_cast<double>(config_.total_steps);
  const double first = config_.warmup_min_lr;
  if (config_.warmup_type == "log") {
    if (s < warmup) return first + (lr - first) * std::log(s + 1) / std::log(std::max(warmup, 2.0));
  } else if (warmup > 0 && s <= warmup) {
    return first + (lr - first) * s / warmup;
  }
  const double x = total > warmup ? std::clamp((s - warmup) / (total - warmup), 0.0, 1.0) : 1.0;
  switch (kind_) {
    case Kind::kConstant:
      return lr;
    case Kind::kLinear:
      return x == 1.0 ? min_lr : lr + (min_lr - lr) * x;
    case Kind::kCosine:
      return min_lr + (lr - min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
    case Kind::kInverseSqrt:
      return std::max(min_lr,
                      lr * std::sqrt(warmup > 0 ? warmup / s : kTimescale / (s + kTimescale)));
  }
  return lr;
}

StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config) {
  using Kind = Schedule::Kind;
  Kind kind;
  if (config.kind == "constant") {
    kind = Kind::kConstant;
  } else if (config.kind == "linear") {
    kind = Kind::kLinear;
  } else if (config.kind == "cosine") {
    kind = Kind::kCosine;
  } else if (config.kind == "inverse_sqrt") {
    kind = Kind::kInverseSqrt;
  } else {
    return InvalidArgument("lr_schedule '", config.kind,
                           "' is unknown; expected constant, linear, cosine or inverse_sqrt");
  }
  if (!std::isfinite(config.lr) || config.lr < 0) {
    return InvalidArgument("lr is ", config.lr, ", expected a number >= 0");
  }
  if (!(config.min_lr >= 0 && config.min_lr <= config.lr)) {
    return InvalidArgument("min_lr is ", config.min_lr, ", expected 0 to lr (", config.lr, ")");
  }
  if (!(std::isfinite(config.warmup_min_lr) && config.warmup_min_lr >= 0)) {
    return InvalidArgument("warmup_min_lr is ", config.warmup_min_lr, ", expected a number >= 0");
  }
  if (config.warmup_type != "linear" && config.warmup_type != "log") {
    return InvalidArgument("warmup_type '", config.warmup_type,
                           "' is unknown; expected linear or log");
  }
  if (config.warmup_steps < 0) {
    return InvalidArgument("warmup_steps is ", config.warmup_steps, ", expected >= 0");
  }
  if ((kind == Kind::kLinear || kind == Kind::kCosine) && config.total_steps < 1) {
    return InvalidArgument("a ", config.kind, " schedule needs the total steps, not ",
                           config.total_steps);
  }
  return Schedule(config, kind);
}

ScheduleConfig CosineAnnealingWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps,
                                       double eta_min) {
  return {.kind = "cosine",
          .lr = lr,
          .min_lr = eta_min,
          .warmup_steps = warmup_steps,
          .total_steps = total_steps};
}

ScheduleConfig LinearWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps) {
  return {.kind = "linear", .lr = lr, .warmup_steps = warmup_steps, .total_steps = total_steps};
}

}  // namespace tessera::optim
