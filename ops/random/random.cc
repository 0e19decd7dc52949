#include "ops/random/random.h"

namespace tessera {
namespace {

std::span<const int64_t> SpanOf(const Shape& shape) {
  return {shape.begin(), static_cast<size_t>(shape.ndim())};
}

// `fill` writes the numbers of a box as float32.
template <typename FillBox>
Tensor Filled(const char* name, const Shape& shape, const RandomKey& key,
              const RandomOptions& options, FillBox fill) {
  TESSERA_CHECK(IsFloating(options.dtype), name, "a floating dtype is needed, got ", options.dtype);
  TESSERA_CHECK(key.stored == nullptr, name, "the key of a captured step lies on its device");
  const Shape global = options.global_shape.empty() ? shape : options.global_shape;
  Shape begin = options.begin;
  for (int d = 0; options.begin.empty() && d < global.ndim(); ++d) begin.push_back(0);
  if (options.device.is_meta()) return Empty(shape, options.dtype, options.device);
  const Tensor numbers = Empty(shape, DType::kFloat32);
  fill(numbers.data<float>(), GlobalBox{SpanOf(global), SpanOf(begin), SpanOf(shape)});
  return CopyTo(CastCopy(numbers, options.dtype), options.device);
}

}  // namespace

Tensor Rand(const Shape& shape, const RandomKey& key, const RandomOptions& options) {
  return Filled("rand", shape, key, options,
                [&](float* out, const GlobalBox& box) { FillUniformBox(out, box, key, {}); });
}

Tensor Randn(const Shape& shape, const RandomKey& key, const RandomOptions& options) {
  return Filled("randn", shape, key, options,
                [&](float* out, const GlobalBox& box) { FillNormalBox(out, box, key, {}); });
}

}  // namespace tessera
