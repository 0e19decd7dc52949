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
  const int64_t pairs = args.dims / 2;
  // A token's angles serve all of its heads.
  ParallelFor(args.batch * args.tokens, 8, [&](int64_t begin, int64_t end) {
    std::vector<Wide> cosine(static_cast<size_t>(pairs));
    std::vector<Wide> sine(static_cast<size_t>(pairs));
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t p = 0; p < pairs; ++p) {
        const double frequency =
            std::pow(args.base, -2.0 * static_cast<double>(p) / static_cast<double>(args.dims));
        const double angle = static_cast<double>(args.positions[i]) * frequency;
        cosine[p] = static_cast<Wide>(std::cos(angle));
        sine[p] = static_cast<Wide>(args.inverse ? -std::sin(angle) : std::sin(angle));
      }
      for (int64_t h = 0; h < args.heads; ++h) {
        const int64_t row =
            ((i / args.tokens * args.heads + h) * args.tokens + i % args.tokens) * args.head_dim;
        const T* x = static_cast<const T*>(args.x) + row;
        T* y = static_cast<T*>(args.y) + row;
        for (int64_t p = 0; p < pairs; ++p) {
          const int64_t a = args.interleaved ? 2 * p : p;
          const int64_t b = args.interleaved ? 2 * p + 1 : p + pairs;
          const Wide xa = static_cast<Wide>(x[a]);
          const Wide xb = static_cast<Wide>(x[b]);
          y[a] = T(xa * cosine[p] - xb * sine[p]);
          y[b] = T(xa * sine[p] + xb * cosine[p]);
        }
        std::copy(x + args.dims, x + args.head_dim, y + args.dims);
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
