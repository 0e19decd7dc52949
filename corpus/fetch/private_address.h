// SPDX-License-Identifier: Apache-2.0
// Addresses that are not of the public Internet: what a list of pages from strangers must not
// reach.
#ifndef TESSERA_CORPUS_FETCH_PRIVATE_ADDRESS_H_
#define TESSERA_CORPUS_FETCH_PRIVATE_ADDRESS_H_

#include <sys/socket.h>

namespace tessera::corpus {

// Whether a resolved address lies outside of the public Internet, as IANA's registries of
// special-purpose addresses list it (RFC 6890): this host, private and shared networks, link-local,
// documentation, benchmarks, multicast and reserved ones; of IPv6 also those that stand for such an
// address of IPv4 (mapped, NAT64, 6to4). So is any family but IPv4 and IPv6.
bool IsPrivateAddress(const sockaddr* address);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FETCH_PRIVATE_ADDRESS_H_
