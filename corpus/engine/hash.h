// SPDX-License-Identifier: Apache-2.0
// Hashes of bytes: fast, the same everywhere, and not meant against adversaries.
//
//   const uint64_t h = HashBytes("text", /*seed=*/1);
#ifndef TESSERA_CORPUS_ENGINE_HASH_H_
#define TESSERA_CORPUS_ENGINE_HASH_H_

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::corpus {

// Both halves of a product, folded.
inline uint64_t Fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline constexpr uint64_t kHashA = 0x9E3779B97F4A7C15u, kHashB = 0xD6E8FEB86659FD93u;

inline uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  uint64_t hash = Fold(seed ^ kHashA, bytes.size() ^ kHashB);
  while (bytes.size() >= 8) {
    uint64_t piece;
    std::memcpy(&piece, bytes.data(), 8);
    hash = Fold(hash ^ piece, kHashB);
    bytes.remove_prefix(8);
  }
  uint64_t piece = 0;
  std::memcpy(&piece, bytes.data(), bytes.size());
  return Fold(Fold(hash ^ piece, kHashA), kHashB);
}

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_ENGINE_HASH_H_
