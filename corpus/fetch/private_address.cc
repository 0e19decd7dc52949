// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/private_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace tessera::corpus {
namespace {

struct Block4 {
  uint32_t address;
  int bits;
};

constexpr uint32_t Of(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

constexpr auto kBlocks4 = std::to_array<Block4>({
    {Of(0, 0, 0, 0), 8},        // this network
    {Of(10, 0, 0, 0), 8},       // private
    {Of(100, 64, 0, 0), 10},    // shared by a provider's customers
    {Of(127, 0, 0, 0), 8},      // loopback
    {Of(169, 254, 0, 0), 16},   // link-local, with clouds' metadata
    {Of(172, 16, 0, 0), 12},    // private
    {Of(192, 0, 0, 0), 24},     // protocol assignments
    {Of(192, 0, 2, 0), 24},     // documentation
    {Of(192, 88, 99, 0), 24},   // 6to4 relays
    {Of(192, 168, 0, 0), 16},   // private
    {Of(198, 18, 0, 0), 15},    // benchmarks
    {Of(198, 51, 100, 0), 24},  // documentation
    {Of(203, 0, 113, 0), 24},   // documentation
    {Of(224, 0, 0, 0), 4},      // multicast
    {Of(240, 0, 0, 0), 4},      // reserved, and broadcast
});

bool IsPrivate4(uint32_t address) {
  return std::any_of(kBlocks4.begin(), kBlocks4.end(), [&](const Block4& block) {
    return (address ^ block.address) >> (32 - block.bits) == 0;
  });
}

uint32_t Address4At(const uint8_t* bytes) { return Of(bytes[0], bytes[1], bytes[2], bytes[3]); }

bool IsPrivate6(const uint8_t* bytes) {
  const auto begins = [&](std::initializer_list<int> prefix) {
    return std::equal(prefix.begin(), prefix.end(), bytes);
  };
  // ::ffff:a.b.c.d, and NAT64's 64:ff9b::a.b.c.d
  if (begins({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}) ||
      begins({0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0})) {
    return IsPrivate4(Address4At(bytes + 12));
  }
  if (begins({0x20, 0x02})) return IsPrivate4(Address4At(bytes + 2));  // 6to4
  if (begins({0x20, 0x01, 0x0D, 0xB8})) return true;                   // documentation
  if (begins({0x20, 0x01}) && bytes[2] < 2) return true;               // protocols, Teredo
  // The public addresses of IPv6 are 2000::/3.
  return bytes[0] >> 5 != 1;
}

}  // namespace

bool IsPrivateAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, address, sizeof(ipv4));
    return IsPrivate4(ntohl(ipv4.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 ipv6;
    std::memcpy(&ipv6, address, sizeof(ipv6));
    return IsPrivate6(ipv6.sin6_addr.s6_addr);
  }
  return true;
}

}  // namespace tessera::corpus
