// SPDX-License-Identifier: Apache-2.0
#include "core/device_graph.h"

#include "base/error.h"

namespace tessera {
namespace {

thread_local bool recording = false;

}  // namespace

bool CanRecordGraph(const Device& device) {
  return device.type == DeviceType::kCuda && RegisteredCuda().record != nullptr;
}

std::unique_ptr<DeviceGraph> RecordGraph(const Device& device, const std::function<void()>& work) {
  TESSERA_CHECK(CanRecordGraph(device), "record_graph", "work of ", device, " cannot be recorded");
  TESSERA_CHECK(!recording, "record_graph", "a graph is being recorded already");
  struct Scope {
    Scope() { recording = true; }
    ~Scope() { recording = false; }
  } const scope;
  return RegisteredCuda().record(device.index, work);
}

bool RecordingGraph() { return recording; }

}  // namespace tessera
