// SPDX-License-Identifier: Apache-2.0
// CRC-32C, the checksum of checkpoints.
//
//   uint32_t crc = Crc32c(bytes, size);                 // of everything at once
//   crc = Crc32c(more, more_size, crc);                 // continued
//
// The Castagnoli polynomial 0x1EDC6F41, reflected, initial value and final xor 0xFFFFFFFF, as in
// RFC 3720 (iSCSI) and RFC 9260: Crc32c("123456789") == 0xE3069283. It finds every burst of up to
// 32 flipped bits. Uses the processor's instruction where there is one.
#ifndef TESSERA_BASE_CHECKSUM_H_
#define TESSERA_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

namespace tessera {

// The checksum of what `crc` is the checksum of, followed by `size` bytes.
uint32_t Crc32c(const void* bytes, size_t size, uint32_t crc = 0);

namespace checksum_internal {
// The same by table, whatever the processor.
uint32_t Crc32cPortable(const void* bytes, size_t size, uint32_t crc);
}  // namespace checksum_internal

}  // namespace tessera

#endif  // TESSERA_BASE_CHECKSUM_H_
