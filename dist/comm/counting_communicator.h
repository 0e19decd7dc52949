// SPDX-License-Identifier: Apache-2.0
// Communication that is counted, and ranks that are alone with it.
//
//   auto record = std::make_shared<CommRecord>();
//   Group tp = CountingCommunicator(LoneRankCommunicator(3, 8, "tp"), record);
//   tp->AllReduce(Empty({1 << 20}, DType::kFloat32, Device::Meta()), ReduceOp::kSum)->Wait();
//   record->totals(CommKind::kAllReduce).sent;        // 7 MiB: 2 * 7/8 of 4 MiB
//
// Every call is counted with its payload, and with the bytes that this rank sends and receives if a
// ring algorithm serves it (Patarasuk and Yuan 2009). With n ranks and a payload of B bytes:
//
//   call             payload    sends and receives
//   all-reduce       t          2 (n - 1) B / n, rounded down
//   reduce-scatter   in         (n - 1) B / n
//   all-gather       out        (n - 1) B / n
//   all-to-all       in         sends `in` and receives `out`, each without the rank's own chunk:
//                               (n - 1) B / n of equal chunks
//   broadcast        t          B from the left neighbour to the right one: the root receives
//                               nothing, and the root's left neighbour sends nothing
//   send, receive    t          B one way
//   barrier          nothing    nothing
//
// A transport may do otherwise; payloads and the order of calls are the program's own.
#ifndef TESSERA_DIST_COMM_COUNTING_COMMUNICATOR_H_
#define TESSERA_DIST_COMM_COUNTING_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/communicator.h"

namespace tessera::dist {

enum class CommKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kReceive,
  kBarrier,
};
// By its name.
std::ostream& operator<<(std::ostream& out, CommKind kind);

// One call of a rank. `peer` is the root, the destination or the source; -1: there is none.
struct CommCall {
  CommKind kind = CommKind::kBarrier;
  std::string group = {};  // its name
  int ranks = 1;
  int peer = -1;
  int64_t payload = 0;
  int64_t sent = 0;
  int64_t received = 0;
  // Of an all-to-all: bytes to each rank of the group, none to the rank itself.
  std::vector<int64_t> sent_to = {};
  friend bool operator==(const CommCall&, const CommCall&) = default;
};
std::ostream& operator<<(std::ostream& out, const CommCall& call);

// Sums over calls; bytes.
struct CommTotals {
  int64_t calls = 0;
  int64_t payload = 0;
  int64_t sent = 0;
  int64_t received = 0;
};

// The calls of one rank in all its groups, in order. One thread calls at a time.
class CommRecord {
 public:
  virtual ~CommRecord() = default;
  const std::vector<CommCall>& calls() const { return calls_; }
  CommTotals totals(CommKind kind) const;
  CommTotals totals() const;
  void Clear() { calls_.clear(); }

 private:
  friend class CountedGroup;
  // Around what may wait for other ranks.
  virtual void BeforeWaiting() {}
  virtual void AfterWaiting() {}
  std::vector<CommCall> calls_;
};

// `group`, whose calls `record` keeps; so do the groups that it is split into.
std::shared_ptr<Communicator> CountingCommunicator(std::shared_ptr<Communicator> group,
                                                   std::shared_ptr<CommRecord> record);

// Rank `rank` of `size` without the others. Tensors on meta are left alone, as by any communicator.
// Of those with elements (flags, counts, texts that steer the program) every rank is taken to
// bring what this one brings, and collectives give what they then give: a sum is `size` times
// as much, a maximum is the same, a gathered tensor has `size` copies, a broadcast changes nothing.
// That is the truth where ranks differ in their rows or their share of each layer. The stages of a
// pipeline differ in more: sending goes nowhere, and to receive elements throws Error, as to split
// does, which would need the others' colors (dist/mesh/mesh.h makes the mesh of a lone rank).
// An all-to-all repeats or cuts off this rank's own chunk where it waits for another number of
// elements.
std::shared_ptr<Communicator> LoneRankCommunicator(int rank, int size, const std::string& name);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_COUNTING_COMMUNICATOR_H_
