// SPDX-License-Identifier: Apache-2.0
// The bits of kernels whose sums are chains, or that sum nothing: the same on every instruction set
// with fma, on x86-64 and on ARM64. What is summed across a vector's lanes (norms, softmax, losses,
// attention's rows) is not among them: its order follows the number of lanes.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "base/checksum.h"
#include "core/cpu_isa.h"
#include "core/random.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "ops/cast/cast.h"
#include "ops/dropout/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/reduction/reduction.h"
#include "ops/swiglu/swiglu.h"

namespace tessera {
namespace {

// In [-scale, scale), the same numbers everywhere.
Tensor Numbers(const Shape& shape, uint64_t seed, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = RandomBits(RandomKey::FromSeed(seed), i);
    values[i] = scale * (static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f);
  }
  return Tensor::FromVector<float>(values, shape);
}

// Digests by name: of all results that are added by one.
class Digests {
 public:
  void Add(const std::string& name, const Tensor& x) {
    uint32_t& digest = digests_[name];
    digest = Crc32c(x.raw_data(), static_cast<size_t>(x.nbytes()), digest);
  }
  const std::map<std::string, uint32_t>& all() const { return digests_; }

 private:
  std::map<std::string, uint32_t> digests_;
};

constexpr DType kSingleAndHalf[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// 37 rows and 53 columns end in the middle of vectors and tiles.
void AddProducts(Digests* digests) {
  const Tensor b = Numbers({801, 53}, 2);
  for (const int64_t rows : {1, 37}) {
    const Tensor a = Numbers({rows, 801}, 1);
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      digests->Add("product " + std::string(DTypeName(dtype)),
                   Matmul(Cast(a, dtype), Cast(b, dtype)));
    }
  }
}

// Results and gradients.
void AddFunctions(Digests* digests) {
  const struct {
    const char* name;
    Tensor (*function)(const Tensor&);
    bool of_positive = false;  // the sign of a NaN is the processor's
  } functions[] = {{"exp", Exp},       {"gelu", Gelu},         {"gelu_tanh", GeluTanh},
                   {"silu", Silu},     {"sigmoid", Sigmoid},   {"tanh", Tanh},
                   {"log", Log, true}, {"rsqrt", Rsqrt, true}, {"sqrt", Sqrt, true}};
  for (const auto& [name, function, of_positive] : functions) {
    for (const float scale : {2.0f, 20.0f}) {
      Tensor x = Numbers({4321}, 4, scale);
      if (of_positive) x = Affine(Abs(x), 1, 1e-3);
      for (const DType dtype : kSingleAndHalf) {
        const Tensor in = RequireGrad(CastCopy(x, dtype));
        const Tensor out = function(in);
        Backward(Sum(Cast(out, DType::kFloat32)));
        digests->Add(name, out);
        digests->Add(name, Grad(in));
      }
    }
  }
  for (const DType dtype : kSingleAndHalf) {
    const Tensor gate = Cast(Numbers({77, 131}, 5, 4.0f), dtype);
    const Tensor up = Cast(Numbers({77, 131}, 6), dtype);
    digests->Add("swiglu", SwiGlu(gate, up));
    digests->Add("dropout", Dropout(up, {.p = 0.3, .key = RandomKey::FromSeed(7)}));
  }
}

void AddQuantized(Digests* digests) {
  const Tensor w = Numbers({45, 512}, 8);
  for (const QuantType type : kQuantTypes) {
    const QuantizedMatrix matrix = Quantize(w, type).value();
    for (const int64_t rows : {1, 7}) {
      digests->Add("quantized " + std::string(QuantTypeName(type)),
                   QuantizedLinear(Numbers({rows, 512}, 9, 3.0f), matrix, {}));
    }
  }
}

const std::map<std::string, uint32_t> kRecorded = {
    {"dropout", 3241604452u},
    {"exp", 3504918942u},
    {"gelu", 3487123397u},
    {"gelu_tanh", 3070300101u},
    {"log", 860512060u},
    {"product bfloat16", 2070208459u},
    {"product float16", 2514444459u},
    {"product float32", 2679267344u},
    {"product float64", 2526575980u},
    {"quantized int8", 380103130u},
    {"quantized iq4_nl", 3498992930u},
    {"quantized iq4_xs", 3802884705u},
    {"quantized q2_k", 3847677427u},
    {"quantized q3_k", 4229234967u},
    {"quantized q4_0", 2604858154u},
    {"quantized q4_1", 2824391519u},
    {"quantized q4_k", 1520333991u},
    {"quantized q5_0", 1841574467u},
    {"quantized q5_1", 512220279u},
    {"quantized q5_k", 1563023117u},
    {"quantized q6_k", 2053451774u},
    {"quantized q8_0", 2719078303u},
    {"rsqrt", 900734531u},
    {"sigmoid", 1422260406u},
    {"silu", 1277978541u},
    {"sqrt", 1284603198u},
    {"swiglu", 2001074896u},
    {"tanh", 2162712807u},
};

TEST(KernelBitsTest, AreTheSameOnEveryInstructionSetWithFma) {
  const CpuIsa best = ActiveIsa();
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > best || !HasFma(isa)) continue;
    SetActiveIsa(isa);
    Digests digests;
    AddProducts(&digests);
    AddFunctions(&digests);
    AddQuantized(&digests);
    EXPECT_EQ(digests.all(), kRecorded) << CpuIsaName(isa);
  }
  SetActiveIsa(best);
}

}  // namespace
}  // namespace tessera
