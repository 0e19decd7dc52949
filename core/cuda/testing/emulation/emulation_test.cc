// SPDX-License-Identifier: Apache-2.0
// What the emulation promises: work that nobody waits for has not run, captures replay, what CUDA
// forbids is refused, memory starts as NaN.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "core/cuda/testing/emulation/grid.h"
#include "core/cuda/testing/emulation/work.h"

namespace tessera::cuda::emulation {
namespace {

class EmulationTest : public ::testing::Test {
 protected:
  EmulationTest() {
    first_ = NewStream();
    second_ = NewStream();
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), 4 * sizeof(float)), cudaSuccess);
    cudaGetLastError();
  }
  ~EmulationTest() override {
    cudaEventDestroy(event_);
    cudaStreamDestroy(first_);
    cudaStreamDestroy(second_);
    cudaFree(data_);
  }
  static cudaStream_t NewStream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  // data[0] = f(data[0])
  void Update(cudaStream_t stream, std::function<float(float)> f) {
    EXPECT_EQ(Enqueue(stream, [f, data = data_] { data[0] = f(data[0]); }), cudaSuccess);
  }
  float Value(cudaStream_t stream) {
    float value = 0;
    EXPECT_EQ(cudaMemcpyAsync(&value, data_, sizeof(value), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    return value;
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float* data_ = nullptr;
};

TEST_F(EmulationTest, MemoryStartsAsNaN) { EXPECT_TRUE(std::isnan(Value(first_))); }

TEST_F(EmulationTest, AMissingWaitShows) {
  Update(first_, [](float) { return 1.0f; });
  EXPECT_TRUE(std::isnan(Value(second_)));  // the second stream waits for nobody
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  Update(first_, [](float x) { return x + 1; });
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  EXPECT_EQ(Value(second_), 1.0f);  // up to the event, and not further
  EXPECT_EQ(Value(first_), 2.0f);
}

TEST_F(EmulationTest, AskingMakesProgress) {
  Update(first_, [](float) { return 1.0f; });
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  int asked = 1;
  while (cudaEventQuery(event_) == cudaErrorNotReady) ++asked;
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulationTest, PageableMemoryIsReadAtTheCallAndPinnedWhenItsTurnComes) {
  float pageable = 1;
  ASSERT_EQ(cudaMemcpyAsync(data_, &pageable, 4, cudaMemcpyHostToDevice, first_), cudaSuccess);
  pageable = 2;
  EXPECT_EQ(Value(first_), 1.0f);
  float* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocPortable),
            cudaSuccess);
  *pinned = 3;
  ASSERT_EQ(cudaMemcpyAsync(data_, pinned, 4, cudaMemcpyHostToDevice, first_), cudaSuccess);
  *pinned = 4;
  EXPECT_EQ(Value(first_), 4.0f);
  cudaFreeHost(pinned);
  EXPECT_EQ(cudaMemcpyAsync(data_, &pageable, 17, cudaMemcpyHostToDevice, first_),
            cudaErrorInvalidValue);  // beyond the allocation
}

TEST_F(EmulationTest, ACaptureReplaysWithItsArguments) {
  ASSERT_EQ(cudaMemsetAsync(data_, 0, 4, first_), cudaSuccess);
  float step = 1;
  ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeGlobal), cudaSuccess);
  Update(first_, [step](float x) { return x + step; });
  // A branch on the other stream, joined again.
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  Update(second_, [](float x) { return 2 * x; });
  ASSERT_EQ(cudaEventRecord(event_, second_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(first_, event_, 0), cudaSuccess);
  Update(first_, [](float x) { return x + 10; });
  step = 100;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(Value(first_), 0.0f);  // recorded, not run
  ASSERT_EQ(cudaGraphLaunch(executable, first_), cudaSuccess);
  EXPECT_EQ(Value(first_), 12.0f);
  ASSERT_EQ(cudaGraphLaunch(executable, first_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(Value(first_), 36.0f);
}

TEST_F(EmulationTest, ACaptureRefusesWhatCudaForbids) {
  const auto spoils = [&](cudaStreamCaptureMode mode, const std::function<cudaError_t()>& call,
                          cudaError_t error) {
    EXPECT_EQ(cudaStreamBeginCapture(first_, mode), cudaSuccess);
    EXPECT_EQ(call(), error);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(first_, &status);
    const bool spoiled = status == cudaStreamCaptureStatusInvalidated;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(first_, &graph),
              spoiled ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    EXPECT_EQ(graph == nullptr, spoiled);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return spoiled;
  };
  const auto global = cudaStreamCaptureModeGlobal;
  const auto relaxed = cudaStreamCaptureModeRelaxed;
  float host = 0;
  EXPECT_TRUE(spoils(
      relaxed, [&] { return cudaStreamSynchronize(first_); }, cudaErrorStreamCaptureUnsupported));
  EXPECT_TRUE(spoils(
      relaxed, [&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported));
  EXPECT_TRUE(spoils(
      relaxed, [&] { return cudaMemcpyAsync(&host, data_, 4, cudaMemcpyDeviceToHost, first_); },
      cudaErrorStreamCaptureUnsupported));
  EXPECT_TRUE(spoils(
      relaxed,
      [&] {
        cudaEventRecord(event_, first_);
        return cudaEventQuery(event_);
      },
      cudaErrorCapturedEvent));
  EXPECT_TRUE(spoils(
      relaxed,
      [&] {
        cudaEventRecord(event_, second_);
        return cudaStreamWaitEvent(first_, event_, 0);
      },
      cudaErrorStreamCaptureIsolation));
  void* memory = nullptr;
  EXPECT_TRUE(spoils(
      global, [&] { return cudaMalloc(&memory, 16); }, cudaErrorStreamCaptureUnsupported));
  EXPECT_FALSE(spoils(
      relaxed, [&] { return cudaMalloc(&memory, 16); }, cudaSuccess));
  cudaFree(memory);
  EXPECT_TRUE(spoils(
      global, [&] { return cudaStreamSynchronize(second_); }, cudaErrorStreamCaptureUnsupported));
  cudaEventRecord(event_, second_);
  EXPECT_TRUE(spoils(
      global, [&] { return cudaEventQuery(event_); }, cudaErrorStreamCaptureUnsupported));
  auto mode = relaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_FALSE(spoils(
      global, [&] { return cudaEventSynchronize(event_); }, cudaSuccess));
  cudaThreadExchangeStreamCaptureMode(&mode);
}

TEST_F(EmulationTest, ABranchThatIsNotJoinedIsRefused) {
  ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  Update(second_, [](float x) { return x; });
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first_, &graph), cudaErrorStreamCaptureUnjoined);
}

TEST_F(EmulationTest, LaunchesAreChecked) {
  static const int kKernel = 0;  // its address is the kernel's name
  const auto launch = [&](const GridShape& shape) {
    return EnqueueGrid(&kKernel, shape, first_, [] {});
  };
  EXPECT_EQ(launch({1, 1024, 48 << 10}), cudaSuccess);
  EXPECT_EQ(launch({1, 1025, 0}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({0, 32, 0}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({dim3(1, 65536), 32, 0}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({1, 32, (48 << 10) + 1}), cudaErrorInvalidValue);
  ASSERT_EQ(cudaFuncSetAttribute(&kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10),
            cudaSuccess);
  EXPECT_EQ(launch({1, 32, 64 << 10}), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(&kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
            cudaErrorInvalidValue);
}

TEST_F(EmulationTest, SharedMemoryStartsAsNaNInEachBlock) {
  std::vector<float> seen;
  RunGrid({3, 1, 8}, [&] {
    auto* shared = static_cast<float*>(DynamicShared());
    seen.push_back(shared[1]);
    shared[1] = 1;
  });
  ASSERT_EQ(seen.size(), 3u);
  for (const float x : seen) EXPECT_TRUE(std::isnan(x));
}

TEST_F(EmulationTest, BarriersWaitForAllWhoHaveNotReturned) {
  std::vector<int> counts(64);
  int arrived = 0;
  RunGrid({1, 64, 0}, [&] {
    if (threadIdx.x % 3 == 0) return;
    ++arrived;
    WaitForBlock();
    counts[threadIdx.x] = arrived;
    WaitForBlock();
    --arrived;
    EXPECT_EQ(OrOverBlock(threadIdx.x == 5 ? 1 : 0), 1);
    EXPECT_EQ(OrOverBlock(0), 0);
  });
  for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i], i % 3 == 0 ? 0 : 42) << i;
}

TEST_F(EmulationTest, AsynchronousCopiesArriveWhenTheyAreWaitedFor) {
  alignas(16) float from[4] = {1, 2, 3, 4};
  alignas(16) float to[8] = {};
  RunGrid({1, 1, 0}, [&] {
    BeginCopy(to, from);
    CommitCopyGroup();
    BeginCopy(to + 4, from);
    CommitCopyGroup();
    EXPECT_EQ(to[0], 0.0f);
    WaitForCopyGroups(1);
    EXPECT_EQ(to[3], 4.0f);
    EXPECT_EQ(to[4], 0.0f);
    WaitForCopyGroups(0);
    EXPECT_EQ(to[7], 4.0f);
  });
}

using EmulationDeathTest = EmulationTest;

TEST_F(EmulationDeathTest, ABlockThatCannotGoOnEndsTheProgram) {
  EXPECT_DEATH(RunGrid({1, 64, 0},
                       [] {
                         int lane = 0;
                         // Half of the second warp is elsewhere.
                         if (threadIdx.x < 48) {
                           WaitForBlock();
                         } else {
                           ExchangeInWarp(&lane, sizeof(lane), nullptr, &lane);
                         }
                       }),
               "wait for one another without end");
}

TEST_F(EmulationTest, MemoryIsLimited) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  ASSERT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
  size_t left = 0;
  cudaMemGetInfo(&left, &total);
  EXPECT_EQ(left, free - (1 << 20));
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(&free), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tessera::cuda::emulation
