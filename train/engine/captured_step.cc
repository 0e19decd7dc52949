// SPDX-License-Identifier: Apache-2.0
#include "train/engine/captured_step.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "core/device_graph.h"
#include "core/noise_key_table.h"

namespace tessera::train {
namespace {

// Steps that run as they are before one is recorded.
constexpr int64_t kStepsBefore = 2;
// Attempts to record that may fail for want of memory.
constexpr int64_t kFailures = 3;

std::string ShapesOf(const StepInputs& inputs) {
  std::string text;
  for (const models::Bundle& batch : inputs.batches) {
    for (const auto& [name, tensor] : batch.entries()) text += Concat(name, ' ', tensor, ';');
    text += '|';
  }
  return text;
}

}  // namespace

struct CapturedStep::Recorded {
  explicit Recorded(const Device& device) : keys(device) {}
  std::string shapes;
  StepInputs inputs;  // where the graph reads them
  StepOutputs outputs;
  NoiseKeyTable keys;
  std::unique_ptr<DeviceGraph> graph;
};

CapturedStep::CapturedStep(std::unique_ptr<StepRunner> runner, const Device& device,
                           std::function<void(const std::string&)> say)
    : runner_(std::move(runner)), device_(device), say_(std::move(say)) {}
CapturedStep::~CapturedStep() = default;

StepOutputs CapturedStep::Run(const StepInputs& inputs) {
  if (given_up_) return runner_->Run(inputs);
  const std::string shapes = ShapesOf(inputs);
  alike_ = shapes == last_shapes_ ? alike_ + 1 : 1;
  last_shapes_ = shapes;
  const bool known = recorded_ != nullptr && recorded_->shapes == shapes;
  if (!known) recorded_ = nullptr;  // its memory is wanted
  if (!known && (alike_ <= kStepsBefore || !Record(inputs))) return runner_->Run(inputs);
  if (known) {
    for (size_t m = 0; m < inputs.batches.size(); ++m) {
      for (const auto& [name, tensor] : inputs.batches[m].entries()) {
        CopyInto(*recorded_->inputs.batches[m].FindNamed(name), tensor);
      }
    }
    CopyInto(recorded_->inputs.shares, inputs.shares);
  }
  recorded_->keys.Write(inputs.number);
  recorded_->graph->Replay();
  return recorded_->outputs;
}

// The next step runs as it is: what another use of the model put in its caches is made again.
void CapturedStep::ReleaseMemory() {
  recorded_ = nullptr;
  alike_ = 0;
}

void CapturedStep::GiveUp(const Error& error) {
  given_up_ = true;
  say_(Concat("steps are not captured as a CUDA graph: ", error.what()));
}

bool CapturedStep::Record(const StepInputs& inputs) {
  auto recorded = std::make_unique<Recorded>(device_);
  recorded->shapes = last_shapes_;
  for (const models::Bundle& batch : inputs.batches) {
    recorded->inputs.batches.push_back(OnDevice(batch, device_));
  }
  recorded->inputs.shares = inputs.shares;
  recorded->inputs.number = inputs.number;
  recorded->inputs.options = inputs.options;
  try {
    recorded->graph = RecordGraph(device_, [&] {
      const NoiseKeyTable::Scope noise(&recorded->keys);
      recorded->outputs = runner_->Run(recorded->inputs);
    });
  } catch (const OutOfMemoryError& error) {
    runner_->Undo();
    if (++failures_ < kFailures) {  // what holds it may let go
      alike_ = 0;
    } else {
      GiveUp(error);
    }
    return false;
  } catch (const Error& error) {
    runner_->Undo();
    GiveUp(error);
    return false;
  }
  recorded->inputs.options = nullptr;  // the caller's, for this call
  recorded_ = std::move(recorded);
  if (!told_) say_("steps are captured as a CUDA graph");
  told_ = true;
  return true;
}

}  // namespace tessera::train
