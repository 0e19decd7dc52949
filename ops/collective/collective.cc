// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/collective.h"

#include <memory>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "core/placement.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

bool Alone(const Group& group) { return group == nullptr || group->size() == 1; }

Tensor Owned(const Tensor& x) {
  Tensor copy = EmptyLike(x);
  CopyInto(copy, x.Detach());
  return copy;
}

Tensor Summed(const Tensor& x, const Group& group) {
  Tensor sum = Owned(x);
  group->AllReduce(sum, ReduceOp::kSum)->Wait();
  return sum;
}

Tensor ShareOf(const Tensor& x, int dim, const Group& group) {
  const Share share = EvenShare(x.size(dim), group->size(), group->rank());
  return Slice(x, dim, share.begin, share.count).ContiguousCopy();
}

// A collective moves equal chunks: shares along dim are padded to the largest, which is the first.
Shape PaddedShare(const Tensor& x, int dim, int64_t size, const Group& group) {
  Shape shape = x.shape();
  shape[dim] = EvenShare(size, group->size(), 0).count;
  return shape;
}

// Chunks of a [ranks, padded share...] tensor.
Tensor Chunk(const Tensor& chunks, int rank) {
  Shape shape(chunks.shape().begin() + 1, chunks.shape().end());
  return chunks.AsStrided(shape, ContiguousStrides(shape), rank * shape.numel());
}

Tensor Gathered(const Tensor& x, int dim, int64_t size, const Group& group) {
  const Share mine = EvenShare(size, group->size(), group->rank());
  TESSERA_CHECK(x.size(dim) == mine.count, "all_gather", x, " is not the share of rank ",
                group->rank(), " of ", size, " along dim ", dim);
  const Shape padded = PaddedShare(x, dim, size, group);
  const Tensor in = Zeros(padded, x.dtype(), x.device());
  CopyInto(Slice(in, dim, 0, mine.count), x.Detach());
  Shape all = padded;
  all.insert(0, group->size());
  const Tensor chunks = Empty(all, x.dtype(), x.device());
  group->AllGather(chunks, in)->Wait();
  Shape shape = x.shape();
  shape[dim] = size;
  Tensor whole = Empty(shape, x.dtype(), x.device());
  for (int r = 0; r < group->size(); ++r) {
    const Share share = EvenShare(size, group->size(), r);
    CopyInto(Slice(whole, dim, share.begin, share.count),
             Slice(Chunk(chunks, r), dim, 0, share.count));
  }
  return whole;
}

// A reduce-scatter of x along dim under way.
struct Scattering {
  Tensor out;     // this rank's share, padded
  Tensor chunks;  // kept until it has been sent
  CommHandlePtr handle;
};

Scattering StartReduceScatter(const Tensor& x, int dim, const Group& group) {
  const int64_t size = x.size(dim);
  const Shape padded = PaddedShare(x, dim, size, group);
  Shape all = padded;
  all.insert(0, group->size());
  const Tensor chunks = Zeros(all, x.dtype(), x.device());
  for (int r = 0; r < group->size(); ++r) {
    const Share share = EvenShare(size, group->size(), r);
    CopyInto(Slice(Chunk(chunks, r), dim, 0, share.count),
             Slice(x.Detach(), dim, share.begin, share.count));
  }
  Scattering scattering{Empty(padded, x.dtype(), x.device()), chunks, nullptr};
  scattering.handle = group->ReduceScatter(scattering.out, chunks, ReduceOp::kSum);
  return scattering;
}

Tensor FinishReduceScatter(const Scattering& scattering, int dim, int64_t size,
                           const Group& group) {
  scattering.handle->Wait();
  const Share mine = EvenShare(size, group->size(), group->rank());
  return Slice(scattering.out, dim, 0, mine.count).ContiguousCopy();
}

Tensor ReduceScattered(const Tensor& x, int dim, const Group& group) {
  return FinishReduceScatter(StartReduceScatter(x, dim, group), dim, x.size(dim), group);
}

template <typename Backward>
Tensor Recorded(const char* name, const Tensor& x, Tensor y, Backward backward) {
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [backward](GradContext& ctx) { ctx.set(0, backward(ctx.grad())); });
  }
  return y;
}

}  // namespace

Tensor CopyToGroup(const Tensor& x, const Group& group) {
  if (Alone(group)) return x;
  Tensor y = x.Detach();
  if (!AnyRequiresGrad({x})) return y;
  struct Summing {
    Tensor sum;
    CommHandlePtr handle;
  };
  const auto under_way = std::make_shared<Summing>();
  RecordStarted(
      "copy_to_group", {x}, {y},
      [group, under_way](GradContext& ctx) {
        under_way->sum = Owned(ctx.grad());
        under_way->handle = group->AllReduce(under_way->sum, ReduceOp::kSum);
      },
      [under_way](GradContext& ctx) {
        under_way->handle->Wait();
        ctx.set(0, std::move(under_way->sum));
        *under_way = {};
      });
  return y;
}

Tensor ReduceFromGroup(const Tensor& x, const Group& group) {
  if (Alone(group)) return x;
  return Recorded("reduce_from_group", x, Summed(x, group), [](const Tensor& g) { return g; });
}

Tensor ScatterToGroup(const Tensor& x, int dim, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim, "scatter_to_group");
  const int64_t size = x.size(dim);
  return Recorded("scatter_to_group", x, ShareOf(x.Detach(), dim, group),
                  [group, dim, size](const Tensor& g) { return Gathered(g, dim, size, group); });
}

Tensor GatherFromGroup(const Tensor& x, int dim, int64_t size, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim, "gather_from_group");
  return Recorded("gather_from_group", x, Gathered(x.Detach(), dim, size, group),
                  [group, dim](const Tensor& g) { return ShareOf(g, dim, group); });
}

Tensor AllGatherToGroup(const Tensor& x, int dim, int64_t size, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim, "all_gather_to_group");
  Tensor y = Gathered(x.Detach(), dim, size, group);
  if (!AnyRequiresGrad({x})) return y;
  const auto under_way = std::make_shared<Scattering>();
  RecordStarted(
      "all_gather_to_group", {x}, {y},
      [group, dim, under_way](GradContext& ctx) {
        *under_way = StartReduceScatter(ctx.grad(), dim, group);
      },
      [group, dim, size, under_way](GradContext& ctx) {
        ctx.set(0, FinishReduceScatter(*under_way, dim, size, group));
        *under_way = {};
      });
  return y;
}

Tensor ReduceScatterToGroup(const Tensor& x, int dim, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim, "reduce_scatter_to_group");
  const int64_t size = x.size(dim);
  return Recorded("reduce_scatter_to_group", x, ReduceScattered(x.Detach(), dim, group),
                  [group, dim, size](const Tensor& g) { return Gathered(g, dim, size, group); });
}

Tensor ExchangeRows(const Tensor& x, const std::vector<int64_t>& send,
                    const std::vector<int64_t>& receive, const Group& group) {
  if (Alone(group)) return x;
  const auto exchange = [group](const Tensor& rows, const std::vector<int64_t>& to,
                                const std::vector<int64_t>& from) {
    Shape shape = rows.shape();
    shape[0] = std::accumulate(from.begin(), from.end(), int64_t{0});
    const Shape row(shape.begin() + 1, shape.end());
    const auto elements = [n = row.numel()](std::vector<int64_t> counts) {
      for (int64_t& count : counts) count *= n;
      return counts;
    };
    Tensor out = Empty(shape, rows.dtype(), rows.device());
    group->AllToAll(out, elements(from), Contiguous(rows), elements(to))->Wait();
    return out;
  };
  return Recorded(
      "exchange_rows", x, exchange(x.Detach(), send, receive),
      [exchange, send, receive](const Tensor& g) { return exchange(g, receive, send); });
}

}  // namespace tessera
