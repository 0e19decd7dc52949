// Rotary positions: a thread takes one pair of features of one token and turns it in every head, so
// that angles, which are computed in float64 as on the CPU, are computed once per token.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/rotary/rotary_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void RotaryKernel(RotaryArgs args) {
  using W = Wide<T>;
  const int64_t pairs = args.dims / 2;
  const int64_t width = args.head_dim / args.parts;
  const int64_t total = args.batch * args.tokens * args.parts * pairs;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t p = i % pairs;
    const int64_t part = i / pairs % args.parts;
    const int64_t token = i / (pairs * args.parts) % args.tokens;
    const int64_t row = i / (pairs * args.parts * args.tokens);
    const int64_t position = args.positions[(row * args.parts + part) * args.tokens + token];
    const double frequency =
        pow(args.base, -2.0 * static_cast<double>(p) / static_cast<double>(args.dims));
    double sine;
    double cosine;
    sincos(static_cast<double>(position) * frequency, &sine, &cosine);
    const W c = static_cast<W>(cosine);
    const W s = static_cast<W>(args.inverse ? -sine : sine);
    const int64_t first = args.interleaved ? 2 * p : p;
    const int64_t second = args.interleaved ? 2 * p + 1 : p + pairs;
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t at =
          ((row * args.heads + h) * args.tokens + token) * args.head_dim + part * width;
      const T* x = static_cast<const T*>(args.x) + at;
      T* y = static_cast<T*>(args.y) + at;
      const W a = ToWide(x[first]);
      const W b = ToWide(x[second]);
      y[first] = FromWide<T>(a * c - b * s);
      y[second] = FromWide<T>(a * s + b * c);
    }
  }
}

// Features beyond the rotated ones of each part stay as they are.
template <typename T>
__global__ void PassKernel(RotaryArgs args) {
  const int64_t width = args.head_dim / args.parts;
  const int64_t rest = width - args.dims;
  const int64_t total = args.batch * args.heads * args.tokens * args.parts * rest;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t at = i / rest * width + args.dims + i % rest;
    static_cast<T*>(args.y)[at] = static_cast<const T*>(args.x)[at];
  }
}

void RotaryCuda(const RotaryArgs& args) {
  DispatchCudaFloat(args.dtype, "rotary", [&](auto zero) {
    using T = decltype(zero);
    const int64_t turned = args.batch * args.tokens * args.parts * (args.dims / 2);
    if (turned > 0) {
      Launch("rotary", {GridFor(turned), kThreads}, RotaryKernel<T>, args);
    }
    const int64_t passed =
        args.batch * args.heads * args.tokens * (args.head_dim - args.parts * args.dims);
    if (passed > 0) Launch("rotary", {GridFor(passed), kThreads}, PassKernel<T>, args);
  });
}

TESSERA_REGISTER_KERNEL(rotary_kernel, DeviceType::kCuda, RotaryCuda);

}  // namespace
}  // namespace tessera::cuda
