// SPDX-License-Identifier: Apache-2.0
// Which of 16 adjacent probabilities the attention dropout keeps, for kernels that share the
// random blocks of a tile. Plain C++, so that it is tested on the host against core/random.h.
#ifndef TESSERA_OPS_ATTENTION_DROP_BITS_H_
#define TESSERA_OPS_ATTENTION_DROP_BITS_H_

#include <cstdint>

#include "core/philox.h"

namespace tessera {

// Bit k is set when element first + k of the key's stream is kept: its upper 24 bits, as an
// integer, reach `threshold` = p * 2^24. Five blocks of random words at most.
TESSERA_PHILOX_FN uint32_t KeptBits16(uint64_t key_hi, uint64_t key_lo, uint64_t first,
                                      float threshold) {
  uint32_t bits = 0;
  const uint64_t first_block = first / 4;
  const int skipped = static_cast<int>(first % 4);  // words of the first block before `first`
  for (int b = 0; b < 5; ++b) {
    if (b == 4 && skipped == 0) break;
    const uint64_t block = first_block + static_cast<uint64_t>(b);
    const PhiloxWords words = Philox4x32(
        PhiloxWords{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(key_hi), static_cast<uint32_t>(key_hi >> 32)}},
        static_cast<uint32_t>(key_lo), static_cast<uint32_t>(key_lo >> 32));
    for (int w = 0; w < 4; ++w) {
      const int k = b * 4 + w - skipped;
      const bool kept = static_cast<float>(words.v[w] >> 8) >= threshold;
      if (k >= 0 && k < 16 && kept) bits |= 1u << k;
    }
  }
  return bits;
}

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_DROP_BITS_H_
