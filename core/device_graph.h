// SPDX-License-Identifier: Apache-2.0
// A device's work that is recorded once and run again by one call: a CUDA graph.
//
//   NoiseKeyTable keys(device);                       // core/noise_key_table.h
//   Tensor loss;
//   std::unique_ptr<DeviceGraph> step = RecordGraph(device, [&] {
//     const NoiseKeyTable::Scope noise(&keys);
//     loss = TrainingStep(inputs);                    // nothing runs yet
//   });
//   for (uint64_t i = 1; i <= n; ++i) {
//     CopyInto(inputs, Batch(i));
//     keys.Write(i);
//     step->Replay();
//     Print(loss.Item());
//   }
//
// A replay launches the same kernels on the same addresses, with the same scalars: what changes
// from step to step lies in tensors that are made before. Memory asked for inside comes from a pool
// of the graph's own; tensors that outlive `work` (`loss` above) keep their places in it. Run the
// work once or twice as it is before it is recorded, so that whatever is measured or loaded at
// first use is there.
#ifndef TESSERA_CORE_DEVICE_GRAPH_H_
#define TESSERA_CORE_DEVICE_GRAPH_H_

#include <functional>
#include <memory>

#include "core/device.h"

namespace tessera {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // On the device's compute stream, behind what it was given before; does not wait.
  virtual void Replay() = 0;
};

// Whether this program can record work of `device`: CUDA can.
bool CanRecordGraph(const Device& device);

// Throws what `work` throws, and Error where the device refuses: inside, the host cannot wait for
// the device, and nothing is copied between the two. Nothing of `work` has been run then.
std::unique_ptr<DeviceGraph> RecordGraph(const Device& device, const std::function<void()>& work);

// Whether this thread is inside RecordGraph.
bool RecordingGraph();

}  // namespace tessera

#endif  // TESSERA_CORE_DEVICE_GRAPH_H_
