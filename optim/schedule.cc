// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/nearest_name.h"

namespace tessera::optim {
namespace {

using Names = std::vector<std::string>;

// Of inverse_sqrt without warm-up: Hugging Face's.
constexpr double kTimescale = 10000;

Status CheckName(const char* key, const std::string& name, const Names& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return OkStatus();
  return InvalidArgument(key, " '", name, "' is unknown; expected ", OneOf(known));
}

// Half a wave: 1 at 0, 0 at 1, where `cycles` is 1/2.
double Wave(double x, double cycles) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * (2 * cycles) * x));
}

}  // namespace

const Names& ScheduleNames() {
  static const auto* names = new Names{"constant",
                                       "linear",
                                       "cosine",
                                       "cosine_with_restarts",
                                       "polynomial",
                                       "inverse_sqrt",
                                       "warmup_stable_decay"};
  return *names;
}

const Names& WarmupNames() {
  static const auto* names = new Names{"linear", "log", "cosine", "1-sqrt"};
  return *names;
}

const Names& DecayNames() {
  static const auto* names = new Names{"linear", "cosine", "1-sqrt"};
  return *names;
}

const Names& CountingNames() {
  static const auto* names = new Names{"tessera", "colossal-ai", "flagai"};
  return *names;
}

double Schedule::Warmup(double step) const {
  const double first = config_.warmup_min_lr;
  const double rise = config_.lr - first;
  const auto warmup = static_cast<double>(config_.warmup_steps);
  if (config_.counting == ScheduleCounting::kColossalAi) {
    return first + rise * ((step + 1) / (config_.kind == "linear" ? warmup + 1 : warmup));
  }
  const std::string& type = config_.warmup_type;
  if (type == "log") return first + rise * std::log(step + 1) / std::log(std::max(warmup, 2.0));
  if (type == "cosine") return first + rise * (1.0 - Wave(step / warmup, 0.5));
  if (type == "1-sqrt") return first + rise * (1.0 - std::sqrt(1.0 - step / warmup));
  return first + rise * step / warmup;
}

double Schedule::DecayShare(double step, double x) const {
  const std::string& kind = config_.kind;
  const auto warmup = static_cast<double>(config_.warmup_steps);
  if (kind == "linear") return 1.0 - x;
  if (kind == "polynomial") return std::pow(1.0 - x, config_.power);
  if (kind == "cosine") return Wave(x, config_.cycles.value_or(0.5));
  if (kind == "cosine_with_restarts") {
    return x >= 1 ? 0 : Wave(std::fmod(config_.cycles.value_or(1) * x, 1.0), 0.5);
  }
  if (kind == "warmup_stable_decay") {
    const auto decay = static_cast<double>(config_.decay_steps);
    const double y =
        std::clamp((step - static_cast<double>(config_.total_steps) + decay) / decay, 0.0, 1.0);
    if (config_.decay_type == "cosine") return Wave(y, config_.cycles.value_or(0.5));
    return 1.0 - (config_.decay_type == "1-sqrt" ? std::sqrt(y) : y);
  }
  const double usual = warmup > 0 ? warmup : kTimescale;
  const double scale = config_.timescale ? static_cast<double>(*config_.timescale) : usual;
  return std::sqrt(scale / (step + scale - warmup));  // of lr itself
}

double Schedule::At(int64_t step) const {
  const double lr = config_.lr;
  const double min_lr = config_.min_lr;
  const bool from_zero = config_.counting != ScheduleCounting::kTessera;
  const auto s = static_cast<double>(
      std::max<int64_t>(std::max<int64_t>(step, 1) + config_.offset - (from_zero ? 1 : 0), 0));
  const auto warmup = static_cast<double>(config_.warmup_steps);
  const auto total = static_cast<double>(config_.total_steps);
  if (s < warmup) return Warmup(s);
  if (config_.kind == "constant" || s == warmup) return lr;
  if (config_.kind == "inverse_sqrt") return std::max(min_lr, lr * DecayShare(s, 0));
  const double decay = config_.counting == ScheduleCounting::kFlagAi ? total : total - warmup;
  const double x = total > warmup ? std::clamp((s - warmup) / decay, 0.0, 1.0) : 1.0;
  if (config_.kind == "linear") return x == 1.0 ? min_lr : lr + (min_lr - lr) * x;
  return min_lr + (lr - min_lr) * DecayShare(s, x);
}

StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config) {
  TESSERA_RETURN_IF_ERROR(CheckName("lr_schedule", config.kind, ScheduleNames()));
  if (!std::isfinite(config.lr) || config.lr < 0) {
    return InvalidArgument("lr is ", config.lr, ", expected a number >= 0");
  }
  if (!(config.min_lr >= 0 && config.min_lr <= config.lr)) {
    return InvalidArgument("min_lr is ", config.min_lr, ", expected 0 to lr (", config.lr, ")");
  }
  if (!(std::isfinite(config.warmup_min_lr) && config.warmup_min_lr >= 0)) {
    return InvalidArgument("warmup_min_lr is ", config.warmup_min_lr, ", expected a number >= 0");
  }
  TESSERA_RETURN_IF_ERROR(CheckName("warmup_type", config.warmup_type, WarmupNames()));
  TESSERA_RETURN_IF_ERROR(CheckName("lr_decay_type", config.decay_type, DecayNames()));
  if (config.warmup_steps < 0) {
    return InvalidArgument("warmup_steps is ", config.warmup_steps, ", expected >= 0");
  }
  const bool ends = config.kind != "constant" && config.kind != "inverse_sqrt";
  if (ends && config.total_steps < 1) {
    return InvalidArgument("a ", config.kind, " schedule needs the total steps, not ",
                           config.total_steps);
  }
  if (config.cycles && !(std::isfinite(*config.cycles) && *config.cycles > 0)) {
    return InvalidArgument("lr_cycles is ", *config.cycles, ", expected a number > 0");
  }
  if (!(std::isfinite(config.power) && config.power > 0)) {
    return InvalidArgument("lr_power is ", config.power, ", expected a number > 0");
  }
  if (config.timescale && *config.timescale < 1) {
    return InvalidArgument("lr_timescale is ", *config.timescale, ", expected >= 1");
  }
  if (config.kind == "warmup_stable_decay" &&
      (config.decay_steps < 1 || config.decay_steps > config.total_steps)) {
    return InvalidArgument("lr_decay_steps is ", config.decay_steps, ", expected 1 to ",
                           config.total_steps, ", the steps of the schedule");
  }
  return Schedule(config);
}

ScheduleConfig CosineAnnealingWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps,
                                       double eta_min) {
  return {.kind = "cosine",
          .lr = lr,
          .min_lr = eta_min,
          .warmup_steps = warmup_steps,
          .total_steps = total_steps,
          .counting = ScheduleCounting::kColossalAi};
}

ScheduleConfig LinearWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps) {
  return {.kind = "linear",
          .lr = lr,
          .warmup_steps = warmup_steps,
          .total_steps = total_steps,
          .counting = ScheduleCounting::kColossalAi};
}

}  // namespace tessera::optim
