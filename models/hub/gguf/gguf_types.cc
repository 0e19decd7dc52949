// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_types.h"

#include <algorithm>
#include <vector>

#include "ops/quantized/quantized_matrix.h"

namespace tessera::models {
namespace {

constexpr GgufTensorType kTypes[] = {
    kGgufF32,
    kGgufF16,
    {2, "Q4_0", 32, 18, 2},
    {3, "Q4_1", 32, 20, 3},
    {6, "Q5_0", 32, 22, 8},
    {7, "Q5_1", 32, 24, 9},
    {8, "Q8_0", 32, 34, 7},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84, 10},
    {11, "Q3_K", 256, 110, 12},
    {12, "Q4_K", 256, 144, 15},
    {13, "Q5_K", 256, 176, 17},
    {14, "Q6_K", 256, 210, 18},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66, 19},
    {17, "IQ2_XS", 256, 74, 20},
    {18, "IQ3_XXS", 256, 98, 23},
    {19, "IQ1_S", 256, 50, 24},
    {20, "IQ4_NL", 32, 18, 25},
    {21, "IQ3_S", 256, 110, 26},
    {22, "IQ2_S", 256, 82, 28},
    {23, "IQ4_XS", 256, 136, 30},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56, 31},
    kGgufBF16,
    {34, "TQ1_0", 256, 54, 36},
    {35, "TQ2_0", 256, 66, 37},
    {39, "MXFP4", 32, 17, 38},
};

const GgufTensorType* FindType(const auto& is_it) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), is_it);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

const GgufTensorType* FindGgufType(uint32_t number) {
  return FindType([&](const auto& type) { return type.number == number; });
}

const GgufTensorType* GgufTypeOf(QuantType quant) {
  return FindType([&](const auto& type) { return QuantTypeOf(type) == quant; });
}

const GgufTensorType* GgufTypeOf(DType dtype) {
  return FindType([&](const auto& type) { return DenseTypeOf(type) == dtype; });
}

std::optional<DType> DenseTypeOf(const GgufTensorType& type) {
  if (type.number == kGgufF32.number) return DType::kFloat32;
  if (type.number == kGgufF16.number) return DType::kFloat16;
  if (type.number == kGgufBF16.number) return DType::kBFloat16;
  return std::nullopt;
}

std::optional<QuantType> QuantTypeOf(const GgufTensorType& type) {
  return ParseQuantType(type.name);
}

std::string ReadGgufTypes() {
  std::vector<std::string_view> names;
  for (const GgufTensorType& type : kTypes) {
    if (DenseTypeOf(type) || QuantTypeOf(type)) names.push_back(type.name);
  }
  std::string text(names[0]);
  for (size_t i = 1; i < names.size(); ++i) {
    text.append(i + 1 < names.size() ? ", " : " and ").append(names[i]);
  }
  return text;
}

}  // namespace tessera::models
