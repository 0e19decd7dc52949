// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, and as a table for people.
#include <algorithm>
#include <cstdio>
#include <span>

#include "base/status.h"
#include "nlohmann/json.hpp"
#include "train/plan/plan.h"

namespace tessera::train {
namespace {

using nlohmann::ordered_json;

// More are not listed one by one in a table.
constexpr size_t kMostLines = 64;

ordered_json RankToJson(const RankPlan& rank) {
  ordered_json json = {{"rank", rank.axes.rank},
                       {"dp", rank.axes.dp},
                       {"pp", rank.axes.pp},
                       {"tp", rank.axes.tp},
                       {"cp", rank.axes.cp},
                       {"ep", rank.axes.ep},
                       {"peak_bytes", rank.peak_bytes},
                       {"host_bytes", rank.host_bytes},
                       {"parameters_bytes", rank.parameters_bytes},
                       {"gradients_bytes", rank.gradients_bytes},
                       {"states_bytes", rank.states_bytes},
                       {"data_bytes", rank.data_bytes},
                       {"activations_bytes", rank.activations_bytes},
                       {"buckets_bytes", rank.buckets_bytes},
                       {"workspaces_bytes", rank.workspaces_bytes},
                       {"peaks", rank.peaks},
                       {"checkpoint_bytes", rank.checkpoint_bytes}};
  ordered_json& sent = json["sent_bytes"] = ordered_json::object();
  for (const auto& [group, totals] : rank.communication) sent[group] = totals.sent;
  ordered_json& links = json["links"] = ordered_json::array();
  for (const auto& [to, bytes] : rank.links) {
    links.push_back({{"from", rank.axes.rank}, {"to", to}, {"bytes", bytes}});
  }
  return json;
}

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Amount(int64_t bytes) {
  constexpr double kKibi = 1024;
  double value = static_cast<double>(bytes);
  if (bytes == 0) return "0";
  for (const char* unit : {"B", "KiB", "MiB", "GiB"}) {
    if (value < kKibi) return Format(value < 10 ? "%.2f " : "%.1f ", value) + unit;
    value /= kKibi;
  }
  return Format("%.2f TiB", value);
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string AxesText(const RankAxes& axes) {
  return Concat("dp ", axes.dp, " pp ", axes.pp, " tp ", axes.tp);
}

// Whether two ranks take the same.
bool Alike(const RankPlan& a, const RankPlan& b) {
  return a.axes.pp == b.axes.pp && a.peaks == b.peaks && a.peak_bytes == b.peak_bytes &&
         a.host_bytes == b.host_bytes && a.states_bytes == b.states_bytes;
}

std::string SentText(const RankPlan& rank) {
  std::string sent;
  for (const auto& [group, totals] : rank.communication) {
    if (totals.sent == 0) continue;
    sent += Concat(sent.empty() ? "" : ", ", group, " ", Amount(totals.sent));
  }
  return sent.empty() ? "nothing" : sent;
}

// The most that one of the ranks sends within its node, and to other nodes.
void AddLinks(std::span<const RankPlan> ranks, int64_t devices_per_node,
              std::vector<std::string>* row) {
  int64_t within = 0, between = 0;
  for (const RankPlan& rank : ranks) {
    int64_t all = 0;
    for (const auto& [to, bytes] : rank.links) all += bytes;
    const int64_t outside = rank.SentBetweenNodes(devices_per_node);
    within = std::max(within, all - outside);
    between = std::max(between, outside);
  }
  row->insert(row->end(), {Amount(within), Amount(between)});
}

// Columns of text, each as wide as its widest cell.
std::string Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      text += (c == 0 ? "" : "  ") + Padded(row[c], widths[c]);
    text += "\n";
  }
  return text;
}

}  // namespace

ordered_json Plan::ToJson() const {
  ordered_json json = {{"model", config.model},
                       {"task", task},
                       {"data_assumed", data_assumed},
                       {"parameters", parameter_count},
                       {"peak_bytes", peak_bytes()},
                       {"host_bytes", host_bytes()},
                       {"checkpoint_bytes", checkpoint_bytes},
                       {"tokens_per_step", tokens_per_step},
                       {"flops_per_token", flops_per_token},
                       {"flops_run_per_token", flops_run_per_token},
                       {"total_steps", nullptr},
                       {"steps_per_epoch", nullptr}};
  if (!data_assumed || config.max_steps) json["total_steps"] = total_steps;
  if (steps_per_epoch) json["steps_per_epoch"] = *steps_per_epoch;
  json["ranks"] = ordered_json::array();
  for (const RankPlan& rank : ranks) json["ranks"].push_back(RankToJson(rank));
  return json;
}

std::string Plan::Table(std::optional<int64_t> devices_per_node) const {
  std::vector<std::vector<std::string>> rows = {{"ranks", "of the first", "peak", "parameters",
                                                 "gradients", "states", "data", "activations",
                                                 "buckets", "workspaces", "host", "sent a step"}};
  if (devices_per_node) rows[0].insert(rows[0].end(), {"within a node", "between nodes"});
  size_t left_out = 0;
  for (size_t r = 0; r < ranks.size();) {
    const RankPlan& rank = ranks[r];
    size_t end = r + 1;
    while (end < ranks.size() && Alike(rank, ranks[end])) ++end;
    if (rows.size() > kMostLines) {
      left_out += end - r;
      r = end;
      continue;
    }
    rows.push_back({end - r == 1 ? Concat(r) : Concat(r, "-", end - 1), AxesText(rank.axes),
                    Amount(rank.peak_bytes), Amount(rank.parameters_bytes),
                    Amount(rank.gradients_bytes), Amount(rank.states_bytes),
                    Amount(rank.data_bytes), Amount(rank.activations_bytes),
                    Amount(rank.buckets_bytes), Amount(rank.workspaces_bytes),
                    Amount(rank.host_bytes), SentText(rank)});
    if (devices_per_node) AddLinks({&ranks[r], end - r}, *devices_per_node, &rows.back());
    r = end;
  }
  std::string text = Columns(rows);
  if (left_out > 0) text += Concat(left_out, " more ranks (--json lists all)\n");
  text += Concat("peak ", Amount(peak_bytes()), ", host ", Amount(host_bytes()), ", checkpoint ",
                 Amount(checkpoint_bytes), " on the disk\n");
  text += Concat(tokens_per_step, " tokens a step, ", Format("%.4g", flops_per_token),
                 " FLOPs a token");
  if (flops_run_per_token > flops_per_token) {
    text += Concat(" (", Format("%.4g", flops_run_per_token), " with recomputation)");
  }
  if (steps_per_epoch) text += Concat(", ", Format("%.6g", *steps_per_epoch), " steps an epoch");
  text += "\n";
  if (data_assumed) text += "the data are not there: a token dataset was taken in their place\n";
  return text;
}

}  // namespace tessera::train
