// SPDX-License-Identifier: Apache-2.0
// Collectives of few ranks out of messages: what Open MPI's nonblocking collectives do slowly.
//
// Up to kMostRanks ranks exchange directly. A reduction adds the ranks' elements in the order of
// the ranks, so that all ranks get the same bits, those of ranks as threads too. Long operands go
// in segments that stay in the caches: a segment's chunks are summed, each on one rank, while no
// more than one segment of each phase is under way.
//
// Messages run on the group's `side` communicator. Their tags derive from the number of the call,
// so that collectives of one group that are under way at once do not meet.
#ifndef TESSERA_DIST_COMM_MPI_EXCHANGE_H_
#define TESSERA_DIST_COMM_MPI_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "dist/comm/mpi_library.h"

namespace tessera::dist {

inline constexpr int kMostRanks = 16;

struct ExchangeGroup {
  MPI_Comm comm;
  int rank;
  int size;
  int tag;  // of the first phase; the second has the next one
};

// The tag of a group's collective number `number`.
inline int ExchangeTag(int64_t number) { return static_cast<int>(2 + number % (1 << 24) * 2); }

// Elements as MPI sees them.
struct ElementType {
  MPI_Datatype type;
  int64_t bytes;
  int64_t largest_count;  // elements of one message
};

// Starts the next messages once the earlier ones are complete; false when there is nothing left.
using NextMessages = std::function<bool(std::vector<MPI_Request>& requests)>;

// data = op over ranks of data, `count` elements.
NextMessages ReduceEverywhere(const ExchangeGroup& group, char* data, int64_t count,
                              const ElementType& element, MPI_Op op);
// out = op over ranks of in's chunk rank(), `count` elements; in has size() of them.
NextMessages ReduceChunks(const ExchangeGroup& group, char* out, const char* in, int64_t count,
                          const ElementType& element, MPI_Op op);
// One chunk for each rank: element begins[r] of an operand is the first of counts[r] elements.
struct Chunks {
  std::vector<int64_t> counts;
  std::vector<int64_t> begins;
};
// out's chunk r = rank r's chunk rank() of in. A chunk without elements takes no message; the own
// chunk, whose two counts must be equal, is copied at once.
void StartChunkExchange(const ExchangeGroup& group, char* out, const Chunks& out_chunks,
                        const char* in, const Chunks& in_chunks, const ElementType& element,
                        std::vector<MPI_Request>& requests);
// The root's data to all others.
void StartBroadcast(const ExchangeGroup& group, char* data, int root, int64_t count,
                    const ElementType& element, std::vector<MPI_Request>& requests);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_EXCHANGE_H_
