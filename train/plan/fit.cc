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

// The most rows of a smaller micro-batch, at most half of `rows`, of which some make `all`; 0:
// none.
int64_t FewerRows(int64_t all, int64_t rows) {
  int64_t fewer = rows / 2;
  while (fewer > 0 && all % fewer != 0) --fewer;
  return fewer;
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

namespace {

// What is tried, and what became of it.
class Search {
 public:
  Search(const RunConfig& config, const PlanOptions& options, int64_t bytes,
         const std::optional<Machine>& machine)
      : config_(config),
        options_(options),
        bytes_(bytes),
        machine_(machine),
        rows_of_step_(config.batch_size * config.accumulation_steps() * options.ranks /
                      (config.tp * config.pp * config.cp)) {}

  // The first that fits of what has these axes.
  StatusOr<std::optional<FittedLayout>> First(const Axes& axes) {
    if (axes.ep > 1 && !has_experts_) return std::nullopt;
    const int64_t own_rows = rows_of_step_ * axes.tp * axes.pp * axes.cp / options_.ranks;
    for (int64_t rows = config_.batch_size; rows >= 1; rows = FewerRows(own_rows, rows)) {
      for (const Saving& saving : kSavings) {
        const auto layout = InLayout(config_, axes, saving, options_.ranks, rows_of_step_, rows);
        if (!layout || !layout->Validate().ok()) continue;
        StatusOr<Plan> plan = MakePlan(*layout, options_);
        if (!plan.ok()) {
          refused_ = plan.status();
          if (Message(refused_).find("has no experts") != std::string::npos) has_experts_ = false;
          continue;
        }
        planned_ = true;
        if (plan->peak_bytes() > bytes_) continue;
        std::optional<StepTime> time;
        if (machine_) {
          TESSERA_ASSIGN_OR_RETURN(time, TimeOf(*plan, *machine_));
        }
        return FittedLayout{*std::move(plan), time};
      }
    }
    return std::nullopt;
  }
  // Where not even one could be planned.
  Status Refused() const {
    if (planned_) return OkStatus();
    return refused_.ok() ? Internal("no layout was tried") : refused_;
  }

 private:
  const RunConfig& config_;
  const PlanOptions& options_;
  const int64_t bytes_;
  const std::optional<Machine> machine_;
  const int64_t rows_of_step_;
  Status refused_;
  bool planned_ = false;
  bool has_experts_ = true;
};

}  // namespace

StatusOr<std::vector<FittedLayout>> FindLayouts(const RunConfig& config, const PlanOptions& options,
                                                int64_t bytes,
                                                const std::optional<Machine>& machine) {
  TESSERA_RETURN_IF_ERROR(config.ValidateFor(options.ranks));
  Search search(config, options, bytes, machine);
  std::vector<FittedLayout> fits;
  for (const Axes& axes : AllAxes(config, options, machine)) {
    TESSERA_ASSIGN_OR_RETURN(std::optional<FittedLayout> found, search.First(axes));
    if (found) fits.push_back(*std::move(found));
  }
  TESSERA_RETURN_IF_ERROR(search.Refused());
  std::sort(fits.begin(), fits.end(), Before);
  return fits;
}

StatusOr<std::optional<FittedLayout>> NearestLayout(const RunConfig& config,
                                                    const PlanOptions& options, int64_t bytes) {
  TESSERA_RETURN_IF_ERROR(config.ValidateFor(options.ranks));
  Search search(config, options, bytes, std::nullopt);
  TESSERA_ASSIGN_OR_RETURN(std::optional<FittedLayout> own,
                           search.First({config.tp, config.pp, config.cp, config.ep}));
  if (own || options.ranks == 1) return own;
  TESSERA_ASSIGN_OR_RETURN(std::vector<FittedLayout> fits,
                           FindLayouts(config, options, bytes, std::nullopt));
  if (fits.empty()) return std::nullopt;
  return std::move(fits.front());
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
