// SPDX-License-Identifier: Apache-2.0
#include "train/plan/fit.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// What saves memory beside the axes, in the order of what it costs.
struct Saving {
  int64_t zero;
  bool recompute;
  bool offload;
};
constexpr Saving kSavings[] = {{0, false, false}, {1, false, false}, {1, true, false},
                               {2, true, false},  {3, true, false},  {3, true, true}};

std::vector<int64_t> Divisors(int64_t of, int64_t most) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min(of, most); ++d) {
    if (of % d == 0) divisors.push_back(d);
  }
  return divisors;
}

struct Axes {
  int64_t tp, pp, cp, ep;
};

// The axes of so many ranks. The first is one of data-parallel ranks alone.
std::vector<Axes> AllAxes(const RunConfig& config, const PlanOptions& options,
                          const std::optional<Machine>& machine) {
  constexpr int64_t kLongRow = 8192;
  constexpr int64_t kMost = 64;
  const int64_t most_tp = machine ? machine->devices_per_node : 8;
  const bool long_rows = config.cp > 1 || config.seq_len.value_or(0) >= kLongRow;
  std::vector<Axes> all;
  for (const int64_t tp : Divisors(options.ranks, most_tp)) {
    for (const int64_t pp : Divisors(options.ranks / tp, kMost)) {
      const int64_t dp = options.ranks / (tp * pp);
      for (const int64_t cp : Divisors(dp, long_rows ? kMost : 1)) {
        for (const int64_t ep : Divisors(dp, kMost)) all.push_back({tp, pp, cp, ep});
      }
    }
  }
  return all;
}

// The configuration in a layout, with micro-batches of at most `rows` of `rows_of_step`; nullopt
// where the rows cannot be shared out so.
std::optional<RunConfig> InLayout(const RunConfig& config, const Axes& axes, const Saving& saving,
                                  int64_t ranks, int64_t rows_of_step, int64_t rows) {
  const int64_t data_ranks = ranks / (axes.tp * axes.pp * axes.cp);
  if (rows_of_step % data_ranks != 0 || rows_of_step / data_ranks % rows != 0) return std::nullopt;
  RunConfig layout = config;
  layout.tp = axes.tp;
  layout.pp = axes.pp;
  layout.cp = axes.cp;
  layout.ep = axes.ep;
  layout.sequence_parallel = axes.tp > 1 && config.sequence_parallel;
  layout.batch_size = rows;
  layout.gradient_accumulation_steps = rows_of_step / data_ranks / rows;
  layout.zero = saving.zero;
  layout.checkpoint_activations = saving.recompute || config.checkpoint_activations;
  layout.cpu_offload = saving.offload;
  layout.offload_parameters = saving.offload && config.offload_parameters;
  if (axes.pp == 1) {
    for (const char* key : {"schedule", "num_model_chunks"}) layout.Unset(key);
  }
  return layout;
}

// What a layout costs where no machine says how long it takes.
std::pair<double, int64_t> CostOf(const Plan& plan) {
  const double idle = static_cast<double>(plan.config.pp - 1) /
                      static_cast<double>(plan.config.accumulation_steps());
  int64_t sent = 0;
  for (const RankPlan& rank : plan.ranks) {
    int64_t mine = 0;
    for (const auto& [group, totals] : rank.communication) mine += totals.sent;
    sent = std::max(sent, mine);
  }
  return {plan.flops_run_per_token * (1 + idle), sent};
}

bool Before(const FittedLayout& a, const FittedLayout& b) {
  if (a.time && b.time) return a.time->seconds < b.time->seconds;
  return CostOf(a.plan) < CostOf(b.plan);
}

}  // namespace

std::string FittedLayout::Flags() const {
  const RunConfig& c = plan.config;
  std::string flags = Concat("--tp ", c.tp, " --pp ", c.pp);
  if (c.cp > 1) flags += Concat(" --cp ", c.cp);
  if (c.ep > 1) flags += Concat(" --ep ", c.ep);
  flags += Concat(" --zero ", c.zero, " --batch-size ", c.batch_size,
                  " --gradient-accumulation-steps ", c.gradient_accumulation_steps);
  if (c.sequence_parallel) flags += " --sequence-parallel";
  if (c.checkpoint_activations) flags += " --checkpoint-activations";
  if (c.cpu_offload) flags += " --cpu-offload";
  return flags;
}

StatusOr<std::vector<FittedLayout>> FindLayouts(const RunConfig& config, const PlanOptions& options,
                                                int64_t bytes,
                                                const std::optional<Machine>& machine) {
  TESSERA_RETURN_IF_ERROR(config.ValidateFor(options.ranks));
  const int64_t rows_of_step = config.batch_size * config.accumulation_steps() * options.ranks /
                               (config.tp * config.pp * config.cp);
  std::vector<FittedLayout> fits;
  Status refused;
  bool planned = false;
  bool has_experts = true;
  for (const Axes& axes : AllAxes(config, options, machine)) {
    if (axes.ep > 1 && !has_experts) continue;
    bool found = false;
    for (int64_t rows = config.batch_size; rows >= 1 && !found; rows /= 2) {
      for (const Saving& saving : kSavings) {
        const auto layout = InLayout(config, axes, saving, options.ranks, rows_of_step, rows);
        if (!layout || !layout->Validate().ok()) continue;
        StatusOr<Plan> plan = MakePlan(*layout, options);
        if (!plan.ok()) {
          refused = plan.status();
          if (Message(refused).find("has no experts") != std::string::npos) has_experts = false;
          continue;
        }
        planned = true;
        if (plan->peak_bytes() > bytes) continue;
        std::optional<StepTime> time;
        if (machine) {
          TESSERA_ASSIGN_OR_RETURN(time, TimeOf(*plan, *machine));
        }
        for (RankPlan& rank : plan->ranks) rank.calls.clear();
        fits.push_back({*std::move(plan), time});
        found = true;
        break;
      }
    }
  }
  if (!planned) return refused.ok() ? Internal("no layout was tried") : refused;
  std::sort(fits.begin(), fits.end(), Before);
  return fits;
}

StatusOr<int64_t> ParseBytes(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stop, end);
  const struct {
    const char* name;
    double bytes;
  } units[] = {{"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
               {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, bytes] : units) {
    const double all = value * bytes;
    if (error == std::errc() && unit == name && all >= 1 && all < 0x1p62) {
      return static_cast<int64_t>(all);
    }
  }
  return InvalidArgument("'", text, "' is no size: 80GiB, 80GB or a number of bytes");
}

}  // namespace tessera::train
