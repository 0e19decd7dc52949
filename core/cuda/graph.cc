// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/graph.h"

#include <cuda_runtime_api.h>

#include <exception>

#include "core/cuda/allocator.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"

namespace tessera::cuda {
namespace {

constexpr char kName[] = "record_graph";

// Requests of the scope come from a private pool.
class PoolScope {
 public:
  PoolScope(BlockPool* pool, int id) : pool_(pool), before_(pool->UsePool(id)) {}
  ~PoolScope() { pool_->UsePool(before_); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  BlockPool* pool_;
  int before_;
};

class Graph final : public DeviceGraph {
 public:
  explicit Graph(int device) : device_(device), pool_(PoolOf(device)), pool_id_(pool_.NewPool()) {}
  ~Graph() override {
    if (executable_ != nullptr) {
      // A replay may be under way still.
      Activate(device_);
      cudaStreamSynchronize(ComputeStream(device_));
      cudaGraphExecDestroy(executable_);
    }
    try {
      pool_.RetirePool(pool_id_);
    } catch (const Error&) {
      // The device failed, which whoever runs into it says; a destructor cannot.
    }
  }

  void Record(const std::function<void()>& work) {
    Activate(device_);
    // The pool of the graph needs what the work needed before: that must not lie in the cache.
    pool_.ReleaseCached();
    cudaGraph_t graph = Capture(work);
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    CheckCuda(error, kName);
  }

  void Replay() override {
    Activate(device_);
    CheckCuda(cudaGraphLaunch(executable_, ComputeStream(device_)), "replay_graph");
  }

 private:
  cudaGraph_t Capture(const std::function<void()>& work) {
    const PoolScope private_pool(&pool_, pool_id_);
    const cudaStream_t stream = ComputeStream(device_);
    // Relaxed: the pool may ask CUDA for memory meanwhile.
    CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), kName);
    std::exception_ptr problem;
    try {
      const StreamScope scope(stream);
      work();
    } catch (...) {
      problem = std::current_exception();
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (problem == nullptr && ended == cudaSuccess) return graph;
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (problem != nullptr) std::rethrow_exception(problem);
    ThrowCudaError(ended, kName);
  }

  const int device_;
  BlockPool& pool_;
  const int pool_id_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceGraph> Record(int device, const std::function<void()>& work) {
  auto graph = std::make_unique<Graph>(device);
  graph->Record(work);
  return graph;
}

}  // namespace tessera::cuda
