// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/peak_loops.h"

namespace tessera::TESSERA_ISA {
namespace {

// All tiles of 16 rows of 64 bytes.
struct Configuration {
  uint8_t palette = 1;
  uint8_t rest[15] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) constexpr Configuration kConfiguration;

// Four tiles of sums, from two tiles of each side, as a product of matrices has them.
double TileProducts(int64_t rounds) {
  __asm__ volatile("ldtilecfg %0" ::"m"(kConfiguration));
  __asm__ volatile(
      "tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n tilezero %tmm3\n"
      "tilezero %tmm4\n tilezero %tmm5\n tilezero %tmm6\n tilezero %tmm7");
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n tdpbf16ps %tmm7, %tmm4, %tmm1\n"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n tdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  __asm__ volatile("tilerelease");
  return 0;
}

}  // namespace

extern const ProductLoop kTileProducts;
const ProductLoop kTileProducts = {TileProducts, 4 * 2 * 16 * 16 * 32};

}  // namespace tessera::TESSERA_ISA
