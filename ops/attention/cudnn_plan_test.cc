// SPDX-License-Identifier: Apache-2.0
// cuDNN's own judgement of the graphs, without a GPU: for a described H100/H200 and A100, its
// heuristics must offer an engine and its compiler must make a plan, deterministic and within the
// workspace that a call allows. Skipped where cuDNN is not installed.
#include "ops/attention/cudnn_plan.h"

#include <dlfcn.h>

#include <string>

#include "core/cuda/cudnn.h"
#include "gtest/gtest.h"
#include "ops/attention/sdpa_graph.h"

namespace tessera::cuda {
namespace {

struct DescribedGpu {
  const char* name;
  int capability;  // 100 * major + 10 * minor
  int multiprocessors;
  int shared_bytes;  // per block, with opt-in
};
constexpr DescribedGpu kGpus[] = {{"NVIDIA H200", 900, 132, 232448},
                                  {"NVIDIA A100", 800, 108, 166912}};

std::string Json(const DescribedGpu& gpu) {
  return Concat(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],)"
      R"( "regsPerBlock": 65536, "multiProcessorCount": )",
      gpu.multiprocessors,
      R"(, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": )",
      gpu.shared_bytes,
      R"(, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,)"
      R"( "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,)"
      R"( "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 80000000000,)"
      R"( "smClockRateKHz": 1500000, "memClockRateKHz": 2600000, "l2CacheSize": 41943040,)"
      R"( "cudaDeviceId": 0, "deviceVer": )",
      gpu.capability, R"(, "driverVer": 13000, "deviceName": ")", gpu.name, R"("})");
}

struct Case {
  int64_t batch, heads, kv_heads, q_len, k_len, dim;
  bool causal;
  int64_t offset;
  DType dtype = DType::kBFloat16;
};

// GPT-2 124M and 1.5B, larger heads, grouped heads, ViT, encoder-decoder, a continued sequence, and
// sums of rows that are not 16-byte aligned.
const Case kCases[] = {
    {32, 12, 12, 1024, 1024, 64, true, 0},
    {8, 25, 25, 1024, 1024, 64, true, 0, DType::kFloat16},
    {4, 16, 16, 2048, 2048, 128, true, 0},
    {4, 32, 8, 1024, 1024, 128, true, 0},
    {8, 12, 4, 512, 512, 64, false, 0},
    {64, 12, 12, 197, 197, 64, false, 0},
    {8, 8, 8, 128, 333, 80, false, 0, DType::kFloat16},
    {2, 12, 12, 256, 1024, 64, true, 768},
    {8, 25, 25, 1023, 1023, 64, true, 0},
};

// Over packed projections, as models have them.
SdpaShape ShapeOf(const Case& c, bool backward) {
  SdpaShape s;
  s.batch = c.batch;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.q_len = c.q_len;
  s.k_len = c.k_len;
  s.head_dim = c.dim;
  s.dtype = c.dtype;
  s.causal = c.causal;
  s.query_offset = c.offset;
  const int64_t width = (c.heads + 2 * c.kv_heads) * c.dim;
  s.q = {c.q_len * width, c.dim, width};
  s.k = s.v = {c.k_len * width, c.dim, width};
  s.o = {c.q_len * c.heads * c.dim, c.dim, c.heads * c.dim};
  s.backward = backward;
  s.d_o = s.dq = s.o;
  s.dk = s.dv = {c.k_len * c.kv_heads * c.dim, c.dim, c.kv_heads * c.dim};
  return s;
}

class CudnnPlanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Before cuDNN asks the loader for a driver.
    driver_ = dlopen("ops/attention/libcuda_without_gpu.so", RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(driver_, nullptr) << dlerror();
  }
  void SetUp() override {
    if (!Cudnn::Find().ok()) GTEST_SKIP() << Message(Cudnn::Find().status());
  }
  static StatusOr<CudnnPlan> Build(const DescribedGpu& gpu, const OperationGraph& graph,
                                   size_t workspace) {
    TESSERA_ASSIGN_OR_RETURN(const CudnnDescriptor device, CudnnPropertiesFromJson(Json(gpu)));
    return CudnnPlan::Build(graph, device, workspace);
  }
  static void* driver_;
};
void* CudnnPlanTest::driver_ = nullptr;

constexpr size_t kWorkspace = size_t{1} << 30;

TEST_F(CudnnPlanTest, EveryForwardGraphHasAPlan) {
  for (const DescribedGpu& gpu : kGpus) {
    for (const Case& c : kCases) {
      const SdpaShape shape = ShapeOf(c, false);
      const auto plan = Build(gpu, SdpaForwardGraph(shape), kWorkspace);
      ASSERT_TRUE(plan.ok()) << gpu.name << ", " << shape.ToString() << ": "
                             << Message(plan.status());
      // The fused kernel: no scores in memory.
      EXPECT_LE(plan->workspace_bytes(), 1u << 20) << gpu.name << ", " << shape.ToString();
    }
  }
}

TEST_F(CudnnPlanTest, EveryBackwardGraphHasAPlan) {
  for (const DescribedGpu& gpu : kGpus) {
    for (const Case& c : kCases) {
      const SdpaShape shape = ShapeOf(c, true);
      const auto plan = Build(gpu, SdpaBackwardGraph(shape), kWorkspace);
      ASSERT_TRUE(plan.ok()) << gpu.name << ", " << shape.ToString() << ": "
                             << Message(plan.status());
    }
  }
}

// The parts of a batch that is too large for the workspace fit into it.
TEST_F(CudnnPlanTest, PartsOfABatchFit) {
  const Case large[] = {{64, 12, 12, 1024, 1024, 64, true, 0},
                        {42, 12, 12, 1024, 1024, 64, true, 0},
                        {9, 32, 8, 2000, 2000, 128, true, 0}};
  for (const DescribedGpu& gpu : kGpus) {
    for (const Case& c : large) {
      SdpaShape shape = ShapeOf(c, true);
      shape.batch = SdpaRowsAtOnce(shape, kWorkspace);
      const auto plan = Build(gpu, SdpaBackwardGraph(shape), kWorkspace);
      ASSERT_TRUE(plan.ok()) << gpu.name << ", " << shape.ToString() << ": "
                             << Message(plan.status());
    }
    SdpaShape small = ShapeOf({5, 2, 2, 130, 130, 64, true, 0}, true);
    small.batch = SdpaRowsAtOnce(small, 1 << 20);
    EXPECT_EQ(small.batch, 3);
    EXPECT_TRUE(Build(gpu, SdpaBackwardGraph(small), 1 << 20).ok());
  }
}

TEST_F(CudnnPlanTest, TheWorkspaceLimitHolds) {
  const SdpaShape shape = ShapeOf(kCases[0], true);
  const auto plan = Build(kGpus[0], SdpaBackwardGraph(shape), 1 << 20);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(Message(plan.status()).find("bytes of workspace"), std::string::npos)
      << Message(plan.status());
}

TEST_F(CudnnPlanTest, AGraphThatIsNotAttentionIsRefused) {
  const SdpaShape shape = ShapeOf(kCases[0], false);
  OperationGraph graph = SdpaForwardGraph(shape);
  graph.operations.erase(graph.operations.begin() + 7);  // the scores less their maximum
  EXPECT_FALSE(Build(kGpus[0], graph, kWorkspace).ok());
  graph = SdpaForwardGraph(shape);
  graph.tensors[0].dims[3] += 8;  // q's head size is not k's
  EXPECT_FALSE(Build(kGpus[0], graph, kWorkspace).ok());
  EXPECT_FALSE(CudnnPropertiesFromJson("{}").ok());
}

}  // namespace
}  // namespace tessera::cuda
