// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[0][b]: the effect of byte b; tables[k][b]: the same with k zero bytes behind it.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const unsigned char* p, size_t size,
                                                       uint32_t crc) {
  uint64_t state = crc;
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word;
    __builtin_memcpy(&word, p, 8);
    state = __builtin_ia32_crc32di(state, word);
  }
  uint32_t tail = static_cast<uint32_t>(state);
  for (; size > 0; ++p, --size) tail = __builtin_ia32_crc32qi(tail, *p);
  return tail;
}
#endif

}  // namespace

namespace checksum_internal {

uint32_t Crc32cPortable(const void* bytes, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  crc = ~crc;
  for (; size >= 8; p += 8, size -= 8) {
    crc ^= p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][crc >> 8 & 0xff] ^ kTables[5][crc >> 16 & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; size > 0; ++p, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

}  // namespace checksum_internal

uint32_t Crc32c(const void* bytes, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~Crc32cSse42(static_cast<const unsigned char*>(bytes), size, ~crc);
  }
#endif
  return checksum_internal::Crc32cPortable(bytes, size, crc);
}

}  // namespace tessera
