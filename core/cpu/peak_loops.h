// SPDX-License-Identifier: Apache-2.0
// Loops that do nothing but what one unit of a core does best. Plain pointers only.
#ifndef TESSERA_CORE_CPU_PEAK_LOOPS_H_
#define TESSERA_CORE_CPU_PEAK_LOOPS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera {

// Products and sums from registers to registers. run(n) returns something that depends on all.
struct ProductLoop {
  double (*run)(int64_t rounds) = nullptr;
  int64_t flops_per_round = 0;
};

struct PeakLoops {
  ProductLoop products;  // float32
  float (*read)(const float* from, int64_t n);
  void (*write)(float* to, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const PeakLoops kPeakLoops;)
// On x86-64.
namespace avx512bf16 {
extern const ProductLoop kPairProducts;  // VDPBF16PS
}
namespace amx {
extern const ProductLoop kTileProducts;  // TDPBF16PS
}

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_PEAK_LOOPS_H_
