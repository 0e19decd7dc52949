// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_report.h"

#include <algorithm>

#include "train/ranks/stop_signal.h"

namespace tessera::train {
namespace {

constexpr int64_t kFields = 5;

}  // namespace

std::string StopReason(int64_t stop) {
  if (stop == 0) return "";
  if (stop == kStopTimeLimit) return "the time limit";
  if (stop == kStopCallback) return "a callback";
  return StopSignals::Name(static_cast<int>(stop));
}

StepReport ExchangeReports(const StepReport& mine, const dist::Mesh& mesh) {
  const dist::Group& world = mesh.world();
  if (world->size() == 1) return mine;
  // Whole numbers are exact in float64 far beyond what occurs.
  const Tensor sent = Tensor::FromVector<double>(
      {mine.targets, static_cast<double>(mine.tokens), static_cast<double>(mine.stop),
       mine.failed ? 1.0 : 0.0, mine.written ? 1.0 : 0.0},
      {kFields});
  const Tensor all = Empty({world->size(), kFields}, DType::kFloat64);
  world->AllGather(all, sent)->Wait();
  StepReport sum;
  sum.written = true;
  for (int r = 0; r < world->size(); ++r) {
    const double* report = all.data<double>() + r * kFields;
    sum.targets += report[0];
    sum.tokens += static_cast<int64_t>(report[1]);
    sum.stop = std::max(sum.stop, static_cast<int64_t>(report[2]));
    sum.failed = sum.failed || report[3] != 0;
    sum.written = sum.written && report[4] != 0;
  }
  // The ranks that share a model, or the tokens of rows, see the same batches.
  const int alike = mesh.model()->size() * mesh.cp()->size();
  sum.targets /= static_cast<double>(alike);
  sum.tokens /= alike;
  return sum;
}

std::vector<double> GatherOverData(const std::vector<double>& mine, const dist::Mesh& mesh) {
  if (mesh.dp()->size() == 1) return mine;
  const Tensor all = Empty({mesh.dp()->size(), std::ssize(mine)}, DType::kFloat64);
  mesh.dp()->AllGather(all, Tensor::FromVector<double>(mine, {std::ssize(mine)}))->Wait();
  return all.ToVector<double>();
}

std::map<std::string, double> MeanAuxiliaries(
    const std::vector<std::map<std::string, double>>& each, const std::vector<double>& targets,
    const dist::Mesh& mesh) {
  if (each.empty() || each[0].empty()) return {};
  const std::map<std::string, double>& names = each[0];
  std::vector<double> mine;
  for (size_t m = 0; m < each.size(); ++m) {
    const bool same = std::equal(names.begin(), names.end(), each[m].begin(), each[m].end(),
                                 [](const auto& a, const auto& b) { return a.first == b.first; });
    TESSERA_CHECK(same, "auxiliary", "a model adds losses of the same names in every pass: pass ",
                  m + 1, " of the step has others than pass 1");
    mine.push_back(targets[m]);
    for (const auto& [name, value] : each[m]) mine.push_back(value * targets[m]);
  }
  std::vector<double> sums(names.size() + 1, 0.0);
  const std::vector<double> all = GatherOverData(mine, mesh);
  for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  std::map<std::string, double> means;
  size_t i = 0;
  for (const auto& [name, value] : names) means[name] = sums[++i] / std::max(sums[0], 1.0);
  return means;
}

std::vector<int64_t> GreatestOf(const std::vector<int64_t>& mine, const dist::Mesh& mesh) {
  if (mesh.world()->size() == 1) return mine;
  const Tensor values = Tensor::FromVector<int64_t>(mine, {std::ssize(mine)});
  mesh.world()->AllReduce(values, ReduceOp::kMax)->Wait();
  return values.ToVector<int64_t>();
}

int64_t GreatestOf(int64_t mine, const dist::Mesh& mesh) {
  return GreatestOf(std::vector<int64_t>{mine}, mesh)[0];
}

}  // namespace tessera::train
