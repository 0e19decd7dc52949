// SPDX-License-Identifier: Apache-2.0
// Emulated: captures and graphs. A replay runs a node as late as its dependencies allow, so that
// one that the capture lacks shows as wrong data.
#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda/testing/emulation/machine.h"

using namespace tessera::cuda::emulation;  // NOLINT(build/namespaces): CUDA's functions are global

namespace {

// Adds `node` behind all that it comes after.
void AddInOrder(const std::vector<Node>& nodes, int node, std::vector<bool>* added,
                std::vector<int>* order) {
  // Depth first without recursion: chains are as long as a training step.
  std::vector<std::pair<int, size_t>> open{{node, 0}};
  while (!open.empty()) {
    auto& [at, next] = open.back();
    const std::vector<int>& after = nodes[static_cast<size_t>(at)].after;
    if ((*added)[static_cast<size_t>(at)]) {
      open.pop_back();
    } else if (next < after.size()) {
      open.emplace_back(after[next++], 0);
    } else {
      (*added)[static_cast<size_t>(at)] = true;
      order->push_back(at);
      open.pop_back();
    }
  }
}

std::vector<int> OrderOf(const std::vector<Node>& nodes, const std::vector<int>& last) {
  std::vector<bool> added(nodes.size());
  std::vector<int> order;
  for (const int node : last) AddInOrder(nodes, node, &added, &order);
  return order;
}

// The capture is over, whatever came of it.
void Release(const std::shared_ptr<Capture>& capture) {
  for (const cudaStream_t stream : capture->streams) {
    stream->capture = nullptr;
    stream->last.clear();
  }
  Machine::Get().captures().erase(capture);
}

}  // namespace

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, ThreadCaptureMode());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Machine::Get().Lock();
  if (!Machine::Get().Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const auto lock = Machine::Get().Lock();
  if (!Machine::Get().Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Result(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->last.clear();
  Machine::Get().captures().insert(std::move(capture));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Machine::Get().Lock();
  *graph = nullptr;
  if (!Machine::Get().Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return Result(cudaErrorIllegalState);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return Result(cudaErrorStreamCaptureWrongThread);
  }
  if (capture->origin != stream) {
    capture->invalid = true;
    return Result(cudaErrorStreamCaptureUnmatched);
  }
  const std::vector<int> last = stream->last;
  Release(capture);
  if (capture->invalid) return Result(cudaErrorStreamCaptureInvalidated);
  if (OrderOf(capture->nodes, last).size() != capture->nodes.size()) {
    return Result(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{std::move(capture->nodes), last};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (flags != 0) return Result(cudaErrorInvalidValue);
  auto works = std::make_shared<std::vector<Work>>();
  for (const int node : OrderOf(graph->nodes, graph->last)) {
    works->push_back(graph->nodes[static_cast<size_t>(node)].work);
  }
  *executable = new CUgraphExec_st{std::move(works)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  if (!Machine::Get().Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    // A graph inside a graph is not emulated.
    stream->capture->invalid = true;
    return Result(cudaErrorStreamCaptureUnsupported);
  }
  return Result(Machine::Get().Enqueue(stream, [works = executable->works] {
    for (const Work& work : *works) work();
  }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;  // a launch that is under way holds the work
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  // Their number; the nodes themselves cannot be had.
  if (nodes != nullptr) return Result(cudaErrorInvalidValue);
  *count = graph->nodes.size();
  return cudaSuccess;
}
