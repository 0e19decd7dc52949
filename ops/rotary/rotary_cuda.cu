// Rotary positions: a thread takes one pair of features of one token and turns it in every head, so
// that angles, which are computed in float64 as on the CPU, are computed once per token.
#include <algorithm>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/rotary/rotary_kernel.h"

namespace tessera::cuda {
namespace {

struct Frequencies {
  double of_pair[kMostRotaryPairs];
};

template <typename T>
__global__ void RotaryKernel(RotaryArgs args, const __grid_constant__ Frequencies frequencies) {
  using W = Wide<T>;
  const int64_t pairs = args.pairs;
  const int64_t width = args.head_dim / args.parts;
  const int64_t total = args.batch * args.tokens * args.parts * pairs;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t p = i % pairs;
    const int64_t part = i / pairs % args.parts;
    const int64_t token = i / (pairs * args.parts) % args.tokens;
    const int64_t row = i / (pairs * args.parts * args.tokens);
    const int64_t position = args.positions[(row * args.parts + part) * args.tokens + token];
    double sine;
    double cosine;
    sincos(static_cast<double>(position) * frequencies.of_pair[p], &sine, &cosine);
    const W c = static_cast<W>(args.scale * cosine);
    const W s = static_cast<W>((args.inverse ? -args.scale : args.scale) * sine);
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
  const int64_t rest = width - 2 * args.pairs;
  const int64_t total = args.batch * args.heads * args.tokens * args.parts * rest;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t at = i / rest * width + 2 * args.pairs + i % rest;
    static_cast<T*>(args.y)[at] = static_cast<const T*>(args.x)[at];
  }
}

void RotaryCuda(const RotaryArgs& args) {
  DispatchCudaFloat(args.dtype, "rotary", [&](auto zero) {
    using T = decltype(zero);
    const int64_t turned = args.batch * args.tokens * args.parts * args.pairs;
    if (turned > 0) {
      Frequencies frequencies = {};
      std::copy_n(args.inverse_frequencies, args.pairs, frequencies.of_pair);
      Launch("rotary", {GridFor(turned), kThreads}, RotaryKernel<T>, args, frequencies);
    }
    const int64_t passed =
        args.batch * args.heads * args.tokens * (args.head_dim - 2 * args.parts * args.pairs);
    if (passed > 0) Launch("rotary", {GridFor(passed), kThreads}, PassKernel<T>, args);
  });
}

TESSERA_REGISTER_KERNEL(rotary_kernel, DeviceType::kCuda, RotaryCuda);

}  // namespace
}  // namespace tessera::cuda
