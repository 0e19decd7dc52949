// SPDX-License-Identifier: Apache-2.0
#include "ops/random/random.h"

#include "ops/random/random_kernel.h"

namespace tessera {
namespace {

void RandomCpu(const RandomArgs& args) {
  const auto span = [](const Shape& shape) {
    return std::span<const int64_t>(shape.begin(), static_cast<size_t>(shape.ndim()));
  };
  const GlobalBox box{span(args.global), span(args.begin), span(args.size)};
  if (args.normal) {
    FillNormalBox(args.out, box, args.key, {});
  } else {
    FillUniformBox(args.out, box, args.key, {});
  }
}

TESSERA_REGISTER_KERNEL(random_kernel, DeviceType::kCpu, RandomCpu);

// Throws unless [begin, begin + size) lies in `global`.
void CheckBox(const char* name, const Shape& global, const Shape& begin, const Shape& size) {
  bool inside = global.ndim() == size.ndim() && begin.ndim() == size.ndim();
  for (int d = 0; inside && d < size.ndim(); ++d) {
    inside =
        begin[d] >= 0 && size[d] >= 0 && size[d] <= global[d] && begin[d] <= global[d] - size[d];
  }
  TESSERA_CHECK(inside, name, "the part ", size, " at ", begin, " does not lie in ", global);
}

Tensor Numbers(const char* name, bool normal, const Shape& shape, const RandomKey& key,
               const RandomOptions& options) {
  TESSERA_CHECK(IsFloating(options.dtype), name, "a floating dtype is needed, got ", options.dtype);
  TESSERA_CHECK(key.stored == nullptr || !options.device.is_cpu(), name,
                "the key of a captured step lies on its device");
  RandomArgs args{normal,        options.global_shape.empty() ? shape : options.global_shape,
                  options.begin, shape,
                  key,           nullptr};
  while (options.begin.empty() && args.begin.ndim() < args.global.ndim()) args.begin.push_back(0);
  CheckBox(name, args.global, args.begin, shape);
  const Tensor numbers = Empty(shape, DType::kFloat32, options.device);
  args.out = static_cast<float*>(numbers.raw_data());
  if (numbers.numel() > 0) random_kernel.Launch(options.device, args);
  return options.dtype == DType::kFloat32 ? numbers : CastCopy(numbers, options.dtype);
}

}  // namespace

Tensor Rand(const Shape& shape, const RandomKey& key, const RandomOptions& options) {
  return Numbers("rand", /*normal=*/false, shape, key, options);
}

Tensor Randn(const Shape& shape, const RandomKey& key, const RandomOptions& options) {
  return Numbers("randn", /*normal=*/true, shape, key, options);
}

}  // namespace tessera
