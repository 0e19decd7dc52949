// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/thread_pool.h"
#include "ops/rotary/rotary_kernel.h"

namespace tessera {
namespace {

template <typename T>
void RotaryTyped(const RotaryArgs& args) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int64_t pairs = args.pairs;
  const int64_t width = args.head_dim / args.parts;
  // A token's angles serve all of its heads.
  ParallelFor(args.batch * args.tokens, 8, [&](int64_t begin, int64_t end) {
    std::vector<Wide> cosine(static_cast<size_t>(pairs));
    std::vector<Wide> sine(static_cast<size_t>(pairs));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / args.tokens;
      const int64_t token = i % args.tokens;
      for (int64_t part = 0; part < args.parts; ++part) {
        const int64_t position = args.positions[(row * args.parts + part) * args.tokens + token];
        for (int64_t p = 0; p < pairs; ++p) {
          const double angle = static_cast<double>(position) * args.inverse_frequencies[p];
          cosine[p] = static_cast<Wide>(args.scale * std::cos(angle));
          sine[p] = static_cast<Wide>((args.inverse ? -args.scale : args.scale) * std::sin(angle));
        }
        for (int64_t h = 0; h < args.heads; ++h) {
          const int64_t at =
              ((row * args.heads + h) * args.tokens + token) * args.head_dim + part * width;
          const T* x = static_cast<const T*>(args.x) + row * args.x_batch_stride +
                       h * args.x_head_stride + token * args.x_token_stride + part * width;
          T* y = static_cast<T*>(args.y) + at;
          for (int64_t p = 0; p < pairs; ++p) {
            const int64_t a = args.interleaved ? 2 * p : p;
            const int64_t b = args.interleaved ? 2 * p + 1 : p + pairs;
            const Wide xa = static_cast<Wide>(x[a]);
            const Wide xb = static_cast<Wide>(x[b]);
            y[a] = T(xa * cosine[p] - xb * sine[p]);
            y[b] = T(xa * sine[p] + xb * cosine[p]);
          }
          std::copy(x + 2 * pairs, x + width, y + 2 * pairs);
        }
      }
    }
  });
}

void RotaryCpu(const RotaryArgs& args) {
  DispatchFloat(args.dtype, "rotary", [&](auto zero) { RotaryTyped<decltype(zero)>(args); });
}

TESSERA_REGISTER_KERNEL(rotary_kernel, DeviceType::kCpu, RotaryCpu);

}  // namespace
}  // namespace tessera
