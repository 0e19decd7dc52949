// SPDX-License-Identifier: Apache-2.0
// What only a GPU can show, beside the operations' own tests (which run there through CheckOp):
// copies, bits that must be the CPU's, attention on tensor cores, optimizers, a model's step.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/cuda/allocator.h"
#include "core/cuda/contest.h"
#include "core/cuda/cudnn.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "core/device_graph.h"
#include "core/profiler.h"
#include "core/random.h"
#include "models/family.h"
#include "models/gpt/gpt.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/attention/attention.h"
#include "ops/attention/attention_choice.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/index/index.h"
#include "ops/matmul/linear_gelu.h"
#include "ops/matmul/low_rank_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"
#include "optim/grad_scaler.h"
#include "optim/parameter_groups.h"
#include "optim/sgd/sgd.h"

namespace tessera {
namespace {

const Device kGpu = Device::Cuda(0);

constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                DType::kInt64,   DType::kInt32,    DType::kUInt8,   DType::kBool};

Tensor Random(const Shape& shape, uint64_t seed, DType dtype = DType::kFloat32, double scale = 1) {
  return CastCopy(RandomTensor(shape, seed, scale), dtype);
}

// The same elements, bit for bit.
void ExpectSame(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  const Tensor a = CopyTo(actual, Device::Cpu());
  const Tensor b = expected.ContiguousCopy();
  const auto* x = static_cast<const char*>(a.raw_data());
  const auto* y = static_cast<const char*>(b.raw_data());
  const auto size = static_cast<int64_t>(DTypeSize(a.dtype()));
  for (int64_t i = 0; i < a.numel(); ++i) {
    ASSERT_TRUE(std::equal(x + i * size, x + (i + 1) * size, y + i * size))
        << what << ": element " << i << " of " << expected << ": "
        << a.ToVector<double>()[static_cast<size_t>(i)] << ", expected "
        << b.ToVector<double>()[static_cast<size_t>(i)];
  }
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = CheckDeviceAvailable(kGpu);
    if (!status.ok()) GTEST_SKIP() << Message(status);
  }
};

TEST_F(GpuTest, CopiesCastLikeTheCpu) {
  for (const Shape& shape : {Shape{7, 5, 3}, Shape{4, 8}, Shape{1}, Shape{}, Shape{33, 64}}) {
    const Tensor values = RandomTensor(shape, 1, 40.0);
    for (const DType from : kAllDTypes) {
      // Negative numbers have no unsigned value.
      Tensor source = values;
      if (from == DType::kUInt8) {
        source = Empty(shape, DType::kFloat64);
        for (int64_t i = 0; i < source.numel(); ++i) source.data<double>()[i] = i % 250;
      }
      source = CastCopy(source, from);
      for (const DType to : kAllDTypes) {
        if (to == DType::kUInt8 && from != DType::kUInt8) continue;
        const Tensor expected = CastCopy(source, to);
        const std::string what = Concat(from, " to ", to, " ", shape);
        ExpectSame(CastCopy(CopyTo(source, kGpu), to), expected, what);
        ExpectSame(CastCopy(WithGaps(CopyTo(source, kGpu)), to), expected, what + " strided");
        const Tensor mixed = Empty(shape, to, kGpu);  // host to GPU with a cast
        CopyInto(mixed, source);
        ExpectSame(mixed, expected, what + " from the host");
        const Tensor host = WithGaps(Zeros(shape, to));
        CopyInto(host, CopyTo(source, kGpu));
        ExpectSame(host.ContiguousCopy(), expected, what + " to the host");
      }
    }
  }
}

TEST_F(GpuTest, FillAndAddInto) {
  for (const DType dtype : kAllDTypes) {
    for (const double value : {0.0, 1.0, 3.0}) {
      ExpectSame(Full({5, 7}, value, dtype, kGpu), Full({5, 7}, value, dtype), "fill");
    }
  }
  for (const DType to : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const DType from : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const Shape& shape : {Shape{64, 32}, Shape{9, 5}}) {
        const Tensor a = Random(shape, 1, to);
        const Tensor b = Random(shape, 2, from);
        const Tensor on_gpu = CopyTo(a, kGpu);
        AddInto(on_gpu, CopyTo(b, kGpu));
        const Tensor expected = CastCopy(a, to);
        AddInto(expected, b);
        ExpectSame(on_gpu, expected, "add_into");
      }
    }
  }
}

// On the current stream, without waiting; one side in page-locked memory, the other on the GPU.
void CopyAsync(const Tensor& dst, const Tensor& src) {
  for (const Tensor& t : {dst, src}) {
    if (!t.device().is_cpu()) continue;
    cudaPointerAttributes attributes;
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, t.raw_data()), cudaSuccess);
    ASSERT_EQ(attributes.type, cudaMemoryTypeHost) << "off-loaded tensors are not page-locked";
  }
  ASSERT_EQ(cudaMemcpyAsync(dst.raw_data(), src.raw_data(), static_cast<size_t>(dst.nbytes()),
                            cudaMemcpyDefault, cuda::CurrentStream()),
            cudaSuccess);
}

TEST_F(GpuTest, PinnedCopiesAndStreams) {
  const Tensor source = Empty({1 << 20}, DType::kFloat32, Device::Host());
  Fill(source, 3.0);
  const cuda::Stream stream;
  const cuda::Event copied;
  const Tensor target = Zeros({1 << 20}, DType::kFloat32, kGpu);
  cuda::SynchronizeCurrent("test");
  {
    const cuda::StreamScope scope(stream.get());
    CopyAsync(target, source);
    copied.Record(stream.get());
  }
  copied.Block(cuda::CurrentStream());
  EXPECT_EQ(Sum(target).Item(), 3.0 * (1 << 20));
}

// A block that another stream still reads is not handed out, however soon it is freed.
TEST_F(GpuTest, FreedBlocksWaitForTheStreamsThatUseThem) {
  const Shape shape{1 << 16};
  cuda::BlockPool& pool = cuda::PoolOf(0);
  const Tensor result = Empty(shape, DType::kFloat32, Device::Host());
  const cuda::Stream reader;
  Tensor source = Full(shape, 5.0, DType::kFloat32, kGpu);
  const cuda::Event filled;
  filled.Record(cuda::CurrentStream());
  filled.Block(reader.get());
  // The reader is busy still when the block is freed.
  const Tensor busy = Zeros({1 << 24}, DType::kFloat32, kGpu);
  const Tensor somewhere = Empty(busy.shape(), DType::kFloat32, Device::Host());
  {
    const cuda::StreamScope scope(reader.get());
    CopyAsync(somewhere, busy);
    CopyAsync(result, source);
  }
  void* const block = source.raw_data();
  pool.UsedBy(block, reader.get());
  source = Tensor();
  const Tensor next = Full(shape, 6.0, DType::kFloat32, kGpu);
  EXPECT_NE(next.raw_data(), block);
  cuda::SynchronizeCurrent("test");
  reader.Synchronize();
  EXPECT_EQ(Sum(result).Item(), 5.0 * (1 << 16));
}

// The host's memory may be used again when a copy from it returns, wherever it lies.
TEST_F(GpuTest, CopiesHaveReadTheHostsMemory) {
  for (const Device& host : {Device::Cpu(), Device::Host()}) {
    const Tensor source = Full({1 << 20}, 3.0, DType::kFloat32);
    const Tensor from = Empty(source.shape(), DType::kFloat32, host);
    CopyInto(from, source);
    const Tensor target = Zeros(source.shape(), DType::kFloat32, kGpu);
    CopyInto(target, from);
    CopyInto(from, Full({1 << 20}, 5.0, DType::kFloat32));
    EXPECT_EQ(Sum(target).Item(), 3.0 * (1 << 20)) << host.ToString();
  }
}

TEST_F(GpuTest, CopiesBetweenGpus) {
  if (cuda::DeviceCount() < 2) GTEST_SKIP() << "one GPU";
  const Tensor x = Random({64, 33}, 1);
  const Tensor first = CopyTo(x, kGpu);
  const Tensor second = CopyTo(first, Device::Cuda(1));
  const Tensor turned = CopyTo(Transpose(second, 0, 1), kGpu);
  EXPECT_EQ(second.device(), Device::Cuda(1));
  ExpectSame(turned, Transpose(x, 0, 1), "there and back");
  ExpectSame(Sum(second, {0}), CopyTo(Sum(first, {0}), Device::Cpu()), "each computes the same");
}

TEST_F(GpuTest, CountsTheBytesThatMetaCounts) {
  Allocator& gpu = Allocator::For(kGpu);
  Allocator& meta = Allocator::For(Device::Meta(DeviceType::kCuda));
  const int64_t gpu_before = gpu.stats().current_bytes;
  const int64_t meta_before = meta.stats().current_bytes;
  std::vector<Tensor> kept;
  for (const int64_t n : {1, 100, 5000, 123457, 3000001}) {
    kept.push_back(Empty({n}, DType::kFloat32, kGpu));
    kept.push_back(Empty({n}, DType::kFloat32, Device::Meta(DeviceType::kCuda)));
  }
  EXPECT_EQ(gpu.stats().current_bytes - gpu_before, meta.stats().current_bytes - meta_before);
}

TEST_F(GpuTest, OutOfMemoryIsOneLineAndLeavesTheDeviceUsable) {
  try {
    Empty({int64_t{1} << 46}, DType::kFloat32, kGpu);
    FAIL() << "256 TiB";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("asked for 256.0 TiB"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(Sum(Full({1000}, 1.0, DType::kFloat32, kGpu)).Item(), 1000.0);
  EXPECT_FALSE(CheckDeviceAvailable(Device::Cuda(63)).ok());
}

TEST_F(GpuTest, DropoutHasTheBitsOfTheCpu) {
  const RandomKey key = NoiseKey(7, "drop", 3, 1);
  for (const Shape& shape : {Shape{64, 128}, Shape{3, 5, 7}, Shape{8, 6}}) {
    const Tensor x = Random(shape, 1);
    Shape global = shape;
    Shape begin = shape;
    for (int d = 0; d < shape.ndim(); ++d) {
      global[d] = shape[d] + 4;
      begin[d] = d;
    }
    for (const bool sharded : {false, true}) {
      DropoutOptions options{.p = 0.3, .key = key};
      if (sharded) {
        options.global_shape = global;
        options.begin = begin;
      }
      ExpectSame(Dropout(CopyTo(x, kGpu), options), Dropout(x, options), "dropout");
    }
  }
}

TEST_F(GpuTest, EmbeddingGradientIsTheCpusAndRepeats) {
  const Tensor table = Random({50, 96}, 1);
  const Tensor ids = RandomIndices({40, 50}, 50, 2);
  const Tensor seed = Random({40, 50, 96}, 3);
  const auto gradient = [&](Device device) {
    const Tensor leaf = RequireGrad(CopyTo(table, device));
    const Tensor y = Embedding(leaf, CopyTo(ids, device), {.padding_idx = 7});
    Backward({y}, {CopyTo(seed, device)});
    return CopyTo(Grad(leaf), Device::Cpu());
  };
  const Tensor expected = gradient(Device::Cpu());
  ExpectSame(gradient(kGpu), expected, "embedding gradient");
  ExpectSame(gradient(kGpu), expected, "embedding gradient again");
}

TEST_F(GpuTest, LongSums) {
  for (const Shape& shape :
       {Shape{3, 70000}, Shape{70000, 3}, Shape{5000, 260}, Shape{2, 900, 36}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const Tensor x = Random(shape, 4, dtype);
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        ExpectClose(Sum(CopyTo(x, kGpu), {dim}), Sum(CastCopy(x, DType::kFloat64), {dim}),
                    8 * Epsilon(dtype) * std::sqrt(static_cast<double>(shape[dim])),
                    Concat("sum of ", x, " along ", dim), 1);
      }
    }
  }
}

struct AttentionCase {
  Shape q;
  Shape k;
  AttentionOptions options;
  bool bias = false;
  bool documents = false;
  bool padding = false;
};

std::vector<Tensor> AttentionGradients(const AttentionCase& c, DType dtype, Device device) {
  // Half-precision inputs, so that both sides compute from the same numbers.
  const auto leaf = [&](const Shape& shape, uint64_t seed) {
    return RequireGrad(CopyTo(CastCopy(Random(shape, seed, DType::kBFloat16, 0.8), dtype), device));
  };
  const Tensor q = leaf(c.q, 1);
  const Tensor k = leaf(c.k, 2);
  const Tensor v = leaf(c.k, 3);
  AttentionOptions options = c.options;
  Tensor bias;
  if (c.bias) {
    bias = leaf({1, c.q[1], c.q[2], c.k[2]}, 4);
    if (c.documents && dtype != DType::kFloat64) {
      bias = RequireGrad(CastCopy(bias.Detach(), DType::kFloat32));
    }
    options.bias = bias;
  }
  const auto int32 = [&](const Shape& shape, int64_t high, uint64_t seed) {
    return CopyTo(CastCopy(RandomIndices(shape, high, seed), DType::kInt32), device);
  };
  if (c.documents) {
    options.query_document = int32({c.q[0], c.q[2]}, 3, 5);
    const Tensor own = RandomIndices({c.k[0], c.k[2]}, 3, 6);
    own.data<int64_t>()[1] = kEveryDocument;
    options.key_document = CopyTo(CastCopy(own, DType::kInt32), device);
  }
  if (c.padding) {
    options.key_padding =
        CopyTo(CastCopy(RandomIndices({c.k[0], c.k[2]}, 2, 7), DType::kBool), device);
    options.key_length = int32({c.q[0]}, c.k[2] + 1, 8);
  }
  const Tensor o = Attention(q, k, v, options).output;
  Backward({o}, {CopyTo(CastCopy(Random(o.shape(), 9, DType::kBFloat16), dtype), device)});
  std::vector<Tensor> results = {o, Grad(q), Grad(k), Grad(v)};
  if (c.bias) results.push_back(Grad(bias));
  return results;
}

TEST_F(GpuTest, AttentionAgainstFloat64) {
  const RandomKey key = NoiseKey(5, "attention", 1, 0);
  const std::vector<AttentionCase> cases = {
      {{1, 1, 1, 64}, {1, 1, 1, 64}, {}},
      {{2, 3, 64, 64}, {2, 3, 64, 64}, {.causal = true}},
      {{1, 2, 65, 64}, {1, 2, 65, 64}, {.causal = true}},
      {{1, 2, 130, 128}, {1, 2, 130, 128}, {.causal = true}},
      {{2, 4, 100, 80}, {2, 2, 77, 80}, {}},
      {{1, 4, 33, 96}, {1, 1, 190, 96}, {.causal = true, .query_offset = 157}},
      {{2, 2, 40, 16}, {2, 2, 70, 16}, {.scale = 0.2}, true},
      {{2, 2, 70, 64}, {2, 2, 70, 64}, {.causal = true}, false, true, true},
      {{2, 2, 90, 64}, {2, 2, 66, 64}, {.dropout_p = 0.3, .dropout_key = key}},
      {{1, 2, 70, 128},
       {1, 2, 67, 128},
       {.causal = true, .dropout_p = 0.3, .dropout_key = key, .head_begin = 3, .heads_total = 7}},
      // Several tiles, of which some need no comparison; what begins late, and sees much at once.
      {{1, 1, 200, 64}, {1, 1, 200, 64}, {.causal = true}},
      {{1, 2, 100, 128}, {1, 1, 230, 128}, {.causal = true, .query_offset = 130}},
      {{1, 2, 230, 64}, {1, 1, 130, 64}, {.causal = true, .query_offset = -100}},
      {{1, 1, 200, 64}, {1, 1, 200, 64}, {.causal = true, .window = 90}},
      {{1, 1, 260, 64}, {1, 1, 260, 64}, {.causal = true, .window = 130}},
      {{1, 1, 260, 64}, {1, 1, 260, 64}, {.window = 65}},
      {{2, 2, 300, 64}, {2, 1, 300, 64}, {.window = 2}, true},
      {{1, 1, 100, 64}, {1, 1, 100, 64}, {.scale = -0.1, .causal = true}},
      {{2, 2, 90, 64}, {2, 2, 150, 64}, {.scale = 0.3}, true, true, true},
      {{1, 2, 140, 128}, {1, 1, 140, 128}, {.causal = true, .window = 70}, true, false, true},
      {{1, 1, 150, 64}, {1, 1, 150, 64}, {.causal = true, .dropout_p = 0.2, .dropout_key = key}},
      // Head sizes that the tensor cores do not take, of one tile of features and of several.
      {{1, 2, 70, 1}, {1, 1, 130, 1}, {}},
      {{1, 2, 20, 36}, {1, 2, 30, 36}, {.causal = true}},
      {{2, 4, 140, 20}, {2, 2, 200, 20}, {.causal = true, .query_offset = 60}},
      {{1, 1, 150, 36}, {1, 1, 150, 36}, {.causal = true, .window = 50}, true},
      {{1, 1, 150, 36}, {1, 1, 150, 36}, {.window = 20}, true, true, true},
      {{1, 2, 130, 5}, {1, 1, 70, 5}, {.causal = true, .query_offset = -50}},
      {{2, 2, 90, 36}, {2, 2, 150, 36}, {.scale = -0.3}, true, true, true},
      {{1, 2, 100, 20}, {1, 2, 67, 20}, {.dropout_p = 0.3, .dropout_key = key}},
      {{1, 2, 20, 256}, {1, 2, 30, 256}, {}},
      {{1, 2, 70, 200}, {1, 1, 135, 200}, {.causal = true, .query_offset = 65}},
      {{1, 1, 66, 300}, {1, 1, 66, 300}, {.causal = true, .dropout_p = 0.3, .dropout_key = key}},
      {{1, 2, 65, 131}, {1, 1, 70, 131}, {.causal = true, .window = 30}, true, true, true},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const AttentionCase& c = cases[i];
    const std::vector<Tensor> exact = AttentionGradients(c, DType::kFloat64, Device::Cpu());
    for (const auto& [dtype, error] :
         {std::pair(DType::kBFloat16, 16 * Epsilon(DType::kBFloat16)),
          std::pair(DType::kFloat16, 16 * Epsilon(DType::kFloat16)),
          std::pair(DType::kFloat32, 2e-5), std::pair(DType::kFloat64, 1e-12)}) {
      const std::vector<Tensor> actual = AttentionGradients(c, dtype, kGpu);
      const std::vector<Tensor> again = AttentionGradients(c, dtype, kGpu);
      for (size_t r = 0; r < exact.size(); ++r) {
        const std::string what = Concat("case ", i, " ", dtype, " result ", r);
        ExpectClose(actual[r], exact[r], error, what, 1);
        ExpectSame(actual[r], CopyTo(again[r], Device::Cpu()), what + " again");
      }
    }
  }
}

TEST_F(GpuTest, CudnnAttentionAgainstFloat64) {
  if (!cuda::Cudnn::Find().ok()) GTEST_SKIP() << cuda::DescribeCudnn();
  const AttentionKernelsScope scope(AttentionKernels::kCudnn);
  const std::vector<AttentionCase> cases = {
      {{2, 3, 64, 64}, {2, 3, 64, 64}, {.causal = true}},
      {{1, 2, 130, 128}, {1, 2, 130, 128}, {.causal = true}},
      {{2, 4, 100, 64}, {2, 2, 177, 64}, {}},
      {{2, 3, 197, 64}, {2, 3, 197, 64}, {}},
      {{1, 4, 33, 96}, {1, 1, 190, 96}, {.causal = true, .query_offset = 157}},
      {{1, 4, 64, 128}, {1, 2, 192, 128}, {.causal = true, .query_offset = 70}},
      {{2, 2, 300, 80}, {2, 2, 300, 80}, {.scale = 0.2, .causal = true}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const AttentionCase& c = cases[i];
    const std::vector<Tensor> exact = AttentionGradients(c, DType::kFloat64, Device::Cpu());
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const int64_t calls = CudnnAttentionCalls();
      const std::vector<Tensor> actual = AttentionGradients(c, dtype, kGpu);
      EXPECT_EQ(CudnnAttentionCalls() - calls, 2) << "case " << i << " " << dtype;
      const std::vector<Tensor> again = AttentionGradients(c, dtype, kGpu);
      for (size_t r = 0; r < exact.size(); ++r) {
        const std::string what = Concat("case ", i, " ", dtype, " result ", r);
        ExpectClose(actual[r], exact[r], 16 * Epsilon(dtype), what, 1);
        ExpectSame(actual[r], CopyTo(again[r], Device::Cpu()), what + " again");
      }
    }
  }
}

// A backward pass whose dS is larger than cuDNN may keep is computed in parts of the batch, of
// which the last two may have rows in common, and whose log-sum-exp may begin at any float.
TEST_F(GpuTest, CudnnAttentionInPartsOfTheBatch) {
  if (!cuda::Cudnn::Find().ok()) GTEST_SKIP() << cuda::DescribeCudnn();
  const AttentionKernelsScope scope(AttentionKernels::kCudnn);
  const size_t limit = SetCudnnWorkspaceLimit(1 << 20);
  for (const AttentionCase& c : {AttentionCase{{5, 2, 130, 64}, {5, 2, 130, 64}, {.causal = true}},
                                 AttentionCase{{3, 4, 100, 64}, {3, 2, 177, 64}, {}},
                                 AttentionCase{{2, 5, 131, 64}, {2, 5, 131, 64}, {}}}) {
    const int64_t calls = CudnnAttentionCalls();
    const std::vector<Tensor> actual = AttentionGradients(c, DType::kBFloat16, kGpu);
    EXPECT_EQ(CudnnAttentionCalls() - calls, 2);
    const std::vector<Tensor> exact = AttentionGradients(c, DType::kFloat64, Device::Cpu());
    for (size_t r = 0; r < exact.size(); ++r) {
      ExpectClose(actual[r], exact[r], 16 * Epsilon(DType::kBFloat16), Concat("result ", r), 1);
    }
  }
  SetCudnnWorkspaceLimit(limit);
}

// What is chosen agrees with our own kernels, packed operands included, and repeats itself.
TEST_F(GpuTest, MeasuredAttentionAgreesWithOurOwn) {
  if (!cuda::Cudnn::Find().ok()) GTEST_SKIP() << cuda::DescribeCudnn();
  if (cuda::Properties(0).name == "Emulated GPU") {
    GTEST_SKIP() << "an emulated GPU takes too long for what is worth measuring";
  }
  const Tensor packed = Random({4, 1024, 36, 64}, 1, DType::kBFloat16);
  const auto run = [&] {
    const Tensor leaf = RequireGrad(CopyTo(packed, kGpu), DType::kBFloat16);
    const std::vector<Tensor> p = Split(Transpose(leaf, 1, 2), {12, 12, 12}, 1);
    const Tensor o = Attention(p[0], p[1], p[2], {.causal = true}).output;
    Backward({o}, {CopyTo(Random(o.shape(), 2, DType::kBFloat16), kGpu)});
    return std::vector<Tensor>{CopyTo(o, Device::Cpu()), CopyTo(Grad(leaf), Device::Cpu())};
  };
  std::vector<Tensor> own;
  {
    const AttentionKernelsScope scope(AttentionKernels::kOwn);
    own = run();
  }
  const AttentionKernelsScope scope(AttentionKernels::kMeasured);
  const std::vector<Tensor> chosen = run();
  const std::vector<Tensor> again = run();
  for (size_t r = 0; r < own.size(); ++r) {
    ExpectClose(chosen[r], own[r], 16 * Epsilon(DType::kBFloat16), Concat("result ", r), 1);
    ExpectSame(chosen[r], again[r], Concat("result ", r, " again"));
  }
}

TEST_F(GpuTest, ProductsOfEveryLayout) {
  struct Case {
    Shape a, b;
    bool a_transposed, b_transposed;
  };
  const std::vector<Case> cases = {
      {{64, 128}, {128, 96}, false, false},
      {{64, 128}, {96, 128}, false, true},
      {{128, 64}, {128, 96}, true, false},
      {{128, 64}, {96, 128}, true, true},
      {{1, 7}, {7, 5}, false, false},
      {{33, 1}, {1, 17}, false, false},
      {{5, 3, 33, 20}, {20, 9}, false, false},
      {{4, 17, 31}, {4, 31, 8}, false, false},
      {{2, 3, 8, 16}, {1, 3, 16, 24}, false, false},
      {{3, 8}, {8, 50257}, false, false},
  };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto product = [&](Device device, DType as) {
        const Tensor a = CopyTo(CastCopy(Random(cases[i].a, 1, dtype), as), device);
        const Tensor b = CopyTo(CastCopy(Random(cases[i].b, 2, dtype), as), device);
        return Matmul(cases[i].a_transposed ? Transpose(a, -1, -2) : a,
                      cases[i].b_transposed ? Transpose(b, -1, -2) : b);
      };
      ExpectClose(product(kGpu, dtype), product(Device::Cpu(), DType::kFloat64),
                  8 * Epsilon(dtype) * 12, Concat("product ", i, " ", dtype), 1);
    }
  }
}

// Logits of 1031 words: rows that begin at multiples of 128 bytes, whoever writes them, and the
// loss over them that leaves alone what lies between.
TEST_F(GpuTest, LogitsOfAnOddVocabularyLieInAlignedRows) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    struct Results {
      Tensor logits, term, loss, dh, dw;
    };
    const auto run = [&](Device device) {
      const auto leaf = [&](const Shape& shape, uint64_t seed, double scale) {
        return RequireGrad(CopyTo(Random(shape, seed, dtype, scale), device), dtype);
      };
      const Tensor h = leaf({2, 3, 16}, 1, 1);
      const Tensor w = leaf({1031, 16}, 2, 0.3);
      const Tensor bias = leaf({1031}, 3, 1);
      const LowRank term = {
          .x = {}, .a = leaf({4, 16}, 4, 0.3), .b = leaf({1031, 4}, 5, 0.3), .scale = 2};
      Results r;
      r.logits = Linear(h, w, bias, LinearLayout::kOutIn);
      r.term = LowRankLinear(h, w, bias, LinearLayout::kOutIn, term).Detach();
      const Tensor targets = CopyTo(RandomIndices({2, 3}, 1031, 6), device);
      r.loss = CrossEntropy(r.logits, targets);
      Backward(r.loss);
      r.dh = Grad(h);
      r.dw = Grad(w);
      return r;
    };
    const Results expected = run(Device::Cpu());
    const Results actual = run(kGpu);
    EXPECT_EQ(expected.logits.strides(), (Shape{3 * 1031, 1031, 1}));
    EXPECT_EQ(actual.logits.strides(), (Shape{3 * 1088, 1088, 1}));
    EXPECT_EQ(actual.term.strides(), (Shape{3 * 1088, 1088, 1}));
    const double tolerance = 16 * Epsilon(dtype);
    ExpectClose(actual.logits.Detach(), expected.logits.Detach(), tolerance, "logits", 1);
    ExpectClose(actual.term, expected.term, tolerance, "with a term", 1);
    ExpectClose(actual.loss.Detach(), expected.loss.Detach(), tolerance, "loss", 1);
    ExpectClose(actual.dh, expected.dh, tolerance, "dh", 1);
    ExpectClose(actual.dw, expected.dw, tolerance, "dw", 1);
  }
  // Rows of 16 bytes have no gaps.
  const Tensor x = Zeros({3, 8}, DType::kBFloat16, kGpu);
  EXPECT_EQ(Linear(x, Zeros({1032, 8}, DType::kBFloat16, kGpu), {}, LinearLayout::kOutIn).stride(0),
            1032);
  // A part of wider rows, turned into its gradient where it lies.
  const Tensor wide = Full({4, 48}, 3.0, DType::kBFloat16, kGpu);
  const Tensor part = RequireGrad(Slice(wide, 1, 8, 37), DType::kBFloat16);
  Backward(CrossEntropy(part, Zeros({4}, DType::kInt64, kGpu), {.overwrite_logits = true}));
  const std::vector<float> left = wide.ToVector<float>();
  for (int64_t i = 0; i < 4 * 48; ++i) {
    const bool inside = i % 48 >= 8 && i % 48 < 45;
    EXPECT_EQ(left[static_cast<size_t>(i)] == 3.0f, !inside) << i;
  }
}

// float32 weights after the same steps are the CPU's within a rounding per step.
template <typename MakeOptimizer>
void CheckOptimizer(DType dtype, DType grad_dtype, MakeOptimizer make, const char* name) {
  const auto train = [&](Device device) {
    std::vector<optim::ParameterGroup> groups(2);
    std::vector<Tensor> leaves;
    const Shape shapes[] = {{3}, {17, 5}, {64, 300}, {1}, {40000}};
    for (size_t i = 0; i < 5; ++i) {
      const Tensor leaf = RequireGrad(CopyTo(Random(shapes[i], i, dtype), device), grad_dtype);
      leaves.push_back(leaf);
      groups[i % 2].parameters.push_back({Concat("p", i), leaf});
    }
    groups[1].weight_decay = 0.1;
    groups[1].lr_scale = 0.5;
    auto optimizer = make(groups);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < leaves.size(); ++i) {
        SetGrad(leaves[i], CopyTo(Random(shapes[i], 100 * step + i, grad_dtype), device));
      }
      const optim::ClipResult clipped =
          optim::ClipGradNorm(optimizer.parameters(), {.max_norm = 1.0});
      optimizer.Step({.clip_factor = clipped.factor});
    }
    std::vector<Tensor> results;
    for (const Tensor& leaf : leaves) results.push_back(CopyTo(leaf.Detach(), Device::Cpu()));
    optimizer.VisitState(
        [&](const std::string&, const std::string&, const Tensor& state, const Placement&) {
          results.push_back(CopyTo(state, Device::Cpu()));
        });
    return results;
  };
  const std::vector<Tensor> expected = train(Device::Cpu());
  const std::vector<Tensor> actual = train(kGpu);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double tolerance = IsHalf(actual[i].dtype()) ? Epsilon(dtype) : 1e-6;
    ExpectClose(actual[i], expected[i], tolerance, Concat(name, " ", dtype, " tensor ", i));
  }
}

TEST_F(GpuTest, OptimizersStepLikeTheCpu) {
  const std::pair<DType, DType> dtypes[] = {{DType::kFloat32, DType::kFloat32},
                                            {DType::kBFloat16, DType::kFloat32},
                                            {DType::kBFloat16, DType::kBFloat16},
                                            {DType::kFloat16, DType::kFloat32},
                                            {DType::kFloat64, DType::kFloat64}};
  for (const auto& [dtype, grad_dtype] : dtypes) {
    CheckOptimizer(
        dtype, grad_dtype, [](const auto& groups) { return optim::AdamW(groups, {.lr = 0.01}); },
        "adamw");
    CheckOptimizer(
        dtype, grad_dtype, [](const auto& groups) { return optim::Adam(groups, {.lr = 0.01}); },
        "adam");
    CheckOptimizer(
        dtype, grad_dtype,
        [](const auto& groups) {
          return optim::Sgd(groups, {.lr = 0.01, .momentum = 0.9, .nesterov = true});
        },
        "sgd");
  }
}

TEST_F(GpuTest, AnOverflowSkipsTheStepAndLowersTheScale) {
  const Tensor leaf = RequireGrad(CopyTo(Random({100}, 1, DType::kFloat16), kGpu));
  const std::vector<float> before = leaf.ToVector<float>();
  optim::AdamW optimizer({{.parameters = {{"p", leaf}}}}, {.lr = 0.1});
  optim::GradScaler scaler({.initial_scale = 1024, .hysteresis = 1}, kGpu);
  const Tensor grad = Full({100}, 1.0, DType::kFloat32, kGpu);
  Fill(Slice(grad, 0, 57, 1), INFINITY);
  SetGrad(leaf, grad);
  scaler.CheckFinite(optimizer.parameters());
  EXPECT_EQ(scaler.found_inf().Item(), 1.0);
  optimizer.Step(scaler.Inputs());
  scaler.Update();
  EXPECT_EQ(leaf.ToVector<float>(), before);
  EXPECT_EQ(scaler.scale().Item(), 512.0);
  EXPECT_EQ(scaler.found_inf().Item(), 0.0);
  SetGrad(leaf, Full({100}, 1.0, DType::kFloat32, kGpu));
  scaler.CheckFinite(optimizer.parameters());
  optimizer.Step(scaler.Inputs());
  EXPECT_NE(leaf.ToVector<float>(), before);
}

// A few AdamW steps of a small GPT with dropout, of two micro-batches each; `after_step` is given
// the loss. The allocator's peak is of the steps.
void Train(DType dtype, Device device, const std::function<void(const Tensor&)>& after_step) {
  const nlohmann::json config = {{"model_type", "gpt2"}, {"vocab_size", 1031}, {"n_positions", 96},
                                 {"n_embd", 128},        {"n_layer", 3},       {"n_head", 2},
                                 {"resid_pdrop", 0.1},   {"embd_pdrop", 0.1},  {"attn_pdrop", 0.1}};
  auto model = models::BuildModel(config, {.dtype = dtype, .device = device, .seed = 3});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  std::vector<optim::Parameter> parameters;
  for (nn::Parameter* p : (*model)->Parameters()) {
    if (p->tied_to == nullptr) parameters.push_back({p->name, p->tensor});
  }
  for (nn::Parameter* p : (*model)->Parameters()) {
    for (optim::Parameter& q : parameters) {
      if (p->tied_to != nullptr && q.name == p->tied_to->name) q.tied.push_back(p->tensor);
    }
  }
  optim::AdamW optimizer(optim::SplitByDecay(parameters, {.weight_decay = 0.1}), {.lr = 1e-3});
  const Tensor ids = CopyTo(RandomIndices({2, 96}, 1031, 1), device);
  Allocator::For(device).ResetPeak();
  for (uint64_t step = 1; step <= 5; ++step) {
    Tensor loss;
    for (uint64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const nn::ForwardContext context{
          .training = true, .seed = 9, .step = step, .micro_batch = micro_batch};
      const models::Bundle out =
          (*model)->Run({{keys::kInputIds, ids}, {keys::kLabels, ids}}, {.context = context});
      loss = out.at(keys::kLoss);
      Backward(loss);
    }
    const optim::ClipResult clipped = optim::ClipGradNorm(parameters, {.max_norm = 1.0});
    optimizer.Step({.clip_factor = clipped.factor});
    optimizer.ZeroGrad();
    after_step(loss);
  }
}

std::vector<double> Losses(DType dtype, Device device) {
  std::vector<double> losses;
  Train(dtype, device, [&](const Tensor& loss) { losses.push_back(loss.Item()); });
  return losses;
}

TEST_F(GpuTest, AModelTrainsLikeOnTheCpu) {
  const std::vector<double> expected = Losses(DType::kFloat32, Device::Cpu());
  const std::vector<double> actual = Losses(DType::kFloat32, kGpu);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 2e-4) << "step " << i + 1;
  }
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<double> half = Losses(DType::kBFloat16, kGpu);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(half[i], expected[i], 0.05) << "bfloat16 step " << i + 1;
  }
  EXPECT_EQ(Losses(DType::kBFloat16, kGpu), half);  // deterministic
}

TEST_F(GpuTest, AModelTrainsInTheBytesThatMetaCounts) {
  const AttentionKernelsScope own(AttentionKernels::kOwn);  // cuDNN's own workspace is its secret
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto peak = [&](const Device& device) {
      const int64_t before = Allocator::For(device).stats().current_bytes;
      Train(dtype, device, [](const Tensor&) {});
      return Allocator::For(device).stats().peak_bytes - before;
    };
    EXPECT_EQ(peak(kGpu), peak(Device::Meta(DeviceType::kCuda))) << dtype;
  }
}

// Calls of a kernel while `run` runs.
int64_t CallsOf(const std::string& kernel, const std::function<void()>& run) {
  StartProfiler();
  run();
  for (const ProfileTotal& total : StopProfiler().Totals("kernel")) {
    if (total.name == kernel) return total.calls;
  }
  return 0;
}

TEST_F(GpuTest, ContendersAreTimedAndThoseThatFailAreOut) {
  const Tensor large = Empty({1 << 23}, DType::kFloat32, kGpu);
  const Tensor small = Empty({1000}, DType::kFloat32, kGpu);
  const std::vector<double> ms = cuda::LeastMilliseconds(3, [&](size_t contender) {
    if (contender < 2) Fill(contender == 0 ? large : small, 1.0);
    return contender < 2;
  });
  ASSERT_EQ(ms.size(), 3u);
  EXPECT_GT(ms[1], 0);
  EXPECT_GT(ms[0], ms[1]);
  EXPECT_EQ(ms[2], INFINITY);
}

// What is recorded does not run then, and a profile that is under way knows nothing of it.
TEST_F(GpuTest, AProfileOutlivesARecordedGraph) {
  const Tensor x = Full({1000}, 2.0, DType::kFloat32, kGpu);
  Sum(x);
  StartProfiler();
  Tensor sum;
  const std::unique_ptr<DeviceGraph> graph = RecordGraph(kGpu, [&] { sum = Sum(x); });
  EXPECT_TRUE(StopProfiler().Totals("kernel").empty());
  graph->Replay();
  EXPECT_EQ(sum.Item(), 2000.0);
  EXPECT_EQ(CallsOf("sum", [&] { Sum(x); }), 1);
}

TEST_F(GpuTest, ProductsTakeWhatFollowsIntoTheirEpilogues) {
  // Sizes that cuBLASLt documents for half precision. What it declined would show as kernels of its
  // own: "matmul", "unary" and "binary" of GELU, "sum" and "add_into" of the gradients.
  const Tensor x = RequireGrad(CopyTo(Random({64, 128}, 1, DType::kBFloat16), kGpu));
  const Tensor up = RequireGrad(CopyTo(Random({512, 128}, 2, DType::kBFloat16, 0.1), kGpu));
  const Tensor down = RequireGrad(CopyTo(Random({128, 512}, 3, DType::kBFloat16, 0.1), kGpu));
  const Tensor bias = RequireGrad(CopyTo(Random({512}, 4, DType::kBFloat16), kGpu));
  const Tensor seed = CopyTo(Random({64, 128}, 5, DType::kBFloat16), kGpu);
  const auto run = [&] {
    const Gelued inner = LinearGelu(x, up, bias, LinearLayout::kOutIn);
    Backward({LinearOfGelu(inner, down, Tensor(), LinearLayout::kOutIn)}, {seed});
  };
  run();  // so that there are gradients to add to
  const std::vector<double> once = Grad(down).ToVector<double>();
  for (const char* kernel : {"unary", "binary", "sum"})
    EXPECT_EQ(CallsOf(kernel, run), 0) << kernel;
  // down forward, and x's gradient; of additions, those to the gradients of x and of the bias.
  EXPECT_EQ(CallsOf("matmul", run), 2);
  EXPECT_EQ(CallsOf("matmul and epilogue", run), 4);
  const std::vector<double> sum = Grad(down).ToVector<double>();
  for (size_t i = 0; i < sum.size(); i += 97) {
    EXPECT_NEAR(sum[i], 6 * once[i], 1e-4 * std::abs(sum[i]) + 1e-4) << i;
  }
}

}  // namespace
}  // namespace tessera
