// SPDX-License-Identifier: Apache-2.0
// The interface through which ranks exchange tensors.
//
//   std::shared_ptr<Communicator> group = SingleProcessCommunicator();
//   group->AllReduce(t, ReduceOp::kSum)->Wait();
//
// A group has `size()` ranks; every rank issues the same collectives in the same order. A call may
// return before it has taken effect: the result may be read, and the operands changed, after
// `Wait()`. On a device, waiting orders streams, not the host. Tensors must be contiguous and of
// one dtype on all ranks; those on meta are left alone; sums of bfloat16 and float16 go through
// float32. A layer takes its group as an argument, and with a group of size one equals the plain
// layer.
//
// Implementations: one process (here), ranks as threads of one process
// (core/thread_communicator.h), MPI and NCCL (dist/comm).
#ifndef TESSERA_CORE_COMMUNICATOR_H_
#define TESSERA_CORE_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tessera {

enum class ReduceOp { kSum, kMax, kMin };

// A collective under way.
class CommHandle {
 public:
  virtual ~CommHandle() = default;
  virtual void Wait() = 0;
};
using CommHandlePtr = std::unique_ptr<CommHandle>;

// A handle of what is already done.
CommHandlePtr CompletedHandle();

inline constexpr int kLargestTag = 1 << 20;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "tp", "dp", "world": for messages.
  virtual const std::string& name() const = 0;

  // t = op over ranks of t.
  virtual CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) = 0;
  // out = rank's share of op over ranks of in: in has size() * out.numel() elements, rank-major.
  virtual CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) = 0;
  // out = ranks' `in` one after the other: out has size() * in.numel() elements. `in` may be the
  // rank's own place in `out`.
  virtual CommHandlePtr AllGather(const Tensor& out, const Tensor& in) = 0;
  // t on every rank = t of `root`.
  virtual CommHandlePtr Broadcast(const Tensor& t, int root) = 0;
  // out's chunk r = rank r's chunk rank(): both have size() chunks, rank-major, of as many elements
  // as the counts say; what a rank sends another is what that one receives from it.
  virtual CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                                 const Tensor& in, const std::vector<int64_t>& send_counts) = 0;
  // The same of equal chunks.
  CommHandlePtr AllToAll(const Tensor& out, const Tensor& in);
  // A message to another rank of the group; matched by (source, tag) in order. Tags are 0 to
  // kLargestTag.
  virtual CommHandlePtr Send(const Tensor& t, int destination, int tag) = 0;
  virtual CommHandlePtr Receive(const Tensor& t, int source, int tag) = 0;
  // Returns once every rank has called it.
  virtual void Barrier() = 0;

  // Groups of the ranks with equal `color` (>= 0), ordered by `key`, then by rank. Collective.
  virtual std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) = 0;
};

// Throws Error for counts that are not the operands' of an AllToAll of that group.
void CheckCounts(const Communicator& group, const Tensor& out,
                 const std::vector<int64_t>& receive_counts, const Tensor& in,
                 const std::vector<int64_t>& send_counts);

// The group of one rank: every collective is the identity.
std::shared_ptr<Communicator> SingleProcessCommunicator(const std::string& name = "self");

}  // namespace tessera

#endif  // TESSERA_CORE_COMMUNICATOR_H_
