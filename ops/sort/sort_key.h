// SPDX-License-Identifier: Apache-2.0
// Numbers as unsigned integers of the same order, which is how they are sorted: NaN above all, -0
// as 0. For the CPU and for kernels.
#ifndef TESSERA_OPS_SORT_SORT_KEY_H_
#define TESSERA_OPS_SORT_SORT_KEY_H_

#include <cstdint>
#include <cstring>

#include "core/cuda/strided_index.h"

namespace tessera {

// The bits of negative numbers grow as they fall.
template <typename Key, typename Number>
TESSERA_HD Key FloatingSortKey(Number x) {
  constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
  if (x != x) return ~Key{0};
  if (x == Number(0)) return kSign;
  Key bits;
  memcpy(&bits, &x, sizeof(bits));
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
TESSERA_HD uint32_t SortKey(float x) { return FloatingSortKey<uint32_t>(x); }
TESSERA_HD uint64_t SortKey(double x) { return FloatingSortKey<uint64_t>(x); }
TESSERA_HD uint64_t SortKey(int64_t x) { return static_cast<uint64_t>(x) ^ (uint64_t{1} << 63); }
TESSERA_HD uint32_t SortKey(int32_t x) { return static_cast<uint32_t>(x) ^ (uint32_t{1} << 31); }
TESSERA_HD uint32_t SortKey(uint8_t x) { return x; }
TESSERA_HD uint32_t SortKey(bool x) { return x ? 1 : 0; }

}  // namespace tessera

#endif  // TESSERA_OPS_SORT_SORT_KEY_H_
