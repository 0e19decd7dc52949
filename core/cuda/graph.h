// SPDX-License-Identifier: Apache-2.0
// Recorded work of a GPU (core/device_graph.h) as a CUDA graph with a pool of memory of its own.
#ifndef TESSERA_CORE_CUDA_GRAPH_H_
#define TESSERA_CORE_CUDA_GRAPH_H_

#include <functional>
#include <memory>

#include "core/device_graph.h"

namespace tessera::cuda {

// What `work` gives to the compute stream of GPU `device`. Throws Error where CUDA refuses, and
// what `work` throws.
std::unique_ptr<DeviceGraph> Record(int device, const std::function<void()>& work);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_GRAPH_H_
