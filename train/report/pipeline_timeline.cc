// SPDX-License-Identifier: Apache-2.0
#include "train/report/pipeline_timeline.h"

#include <cmath>
#include <iterator>

#include "base/file.h"
#include "core/tensor.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using dist::ActionKind;

constexpr int64_t kFields = 5;  // of an action: kind, chunk, micro-batch, begin, end

std::string PathIn(const std::string& folder) { return JoinPath(folder, "pipeline.json"); }

// nullptr for transfers, which wait more than they work.
const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kInputGradient:
      return "input_gradient";
    case ActionKind::kWeightGradient:
      return "weight_gradient";
    default:
      return nullptr;
  }
}

std::vector<double> Numbers(const std::vector<dist::TimedAction>& actions) {
  std::vector<double> numbers;
  for (const dist::TimedAction& a : actions) {
    if (NameOf(a.action.kind) == nullptr) continue;
    numbers.insert(numbers.end(),
                   {static_cast<double>(a.action.kind), static_cast<double>(a.action.chunk),
                    static_cast<double>(a.action.micro_batch), a.begin, a.end});
  }
  return numbers;
}

// Of each stage, one after the other. Stages may have taken different numbers of actions: rows are
// as long as the longest, and -1 where there is no action.
std::vector<double> GatherOverStages(std::vector<double> mine, const dist::Mesh& mesh) {
  const dist::Group& pp = mesh.pp();
  const Tensor longest = Tensor::FromVector<int64_t>({std::ssize(mine)}, {1});
  pp->AllReduce(longest, ReduceOp::kMax)->Wait();
  mine.resize(static_cast<size_t>(longest.data<int64_t>()[0]), -1.0);
  const Tensor all = Empty({pp->size(), std::ssize(mine)}, DType::kFloat64);
  pp->AllGather(all, Tensor::FromVector<double>(mine, {std::ssize(mine)}))->Wait();
  return all.ToVector<double>();
}

double Milliseconds(double seconds) { return std::round(1e6 * seconds) / 1e3; }

}  // namespace

Status WritePipelineTimeline(const std::string& folder, int64_t step,
                             const std::vector<dist::TimedAction>& mine, const dist::Mesh& mesh) {
  const std::vector<double> all = GatherOverStages(Numbers(mine), mesh);
  if (!mesh.prints()) return OkStatus();
  const int stages = mesh.pp()->size();
  const size_t row = all.size() / static_cast<size_t>(stages);
  nlohmann::ordered_json file = {{"step", step}, {"stages", nlohmann::ordered_json::array()}};
  for (int stage = 0; stage < stages; ++stage) {
    nlohmann::ordered_json actions = nlohmann::ordered_json::array();
    const double* at = all.data() + static_cast<size_t>(stage) * row;
    const double* const end = at + row;
    for (; at < end && at[0] >= 0; at += kFields) {
      actions.push_back({{"kind", NameOf(static_cast<ActionKind>(at[0]))},
                         {"chunk", static_cast<int>(at[1])},
                         {"micro_batch", static_cast<int>(at[2])},
                         {"begin_ms", Milliseconds(at[3])},
                         {"end_ms", Milliseconds(at[4])}});
    }
    file["stages"].push_back({{"stage", stage}, {"actions", std::move(actions)}});
  }
  return WriteFileAtomically(PathIn(folder), file.dump() + "\n");
}

Status RemovePipelineTimeline(const std::string& folder) { return RemoveAll(PathIn(folder)); }

}  // namespace tessera::train
