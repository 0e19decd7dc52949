#include "ops/collective/collective.h"

#include "autograd/autograd.h"
#include "core/placement.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

bool Alone(const Group& group) { return group == nullptr || group->size() == 1; }

Tensor Owned(const Tensor& x) {
  Tensor copy = EmptyLike(x);
  CopyInto(copy, x);
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
  CopyInto(Slice(in, dim, 0, mine.count), x);
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

Tensor ReduceScattered(const Tensor& x, int dim, const Group& group) {
  const int64_t size = x.size(dim);
  const Shape padded = PaddedShare(x, dim, size, group);
  Shape all = padded;
  all.insert(0, group->size());
  const Tensor chunks = Zeros(all, x.dtype(), x.device());
  for (int r = 0; r < group->size(); ++r) {
    const Share share = EvenShare(size, group->size(), r);
    CopyInto(Slice(Chunk(chunks, r), dim, 0, share.count), Slice(x, dim, share.begin, share.count));
  }
  const Tensor out = Empty(padded, x.dtype(), x.device());
  group->ReduceScatter(out, chunks, ReduceOp::kSum)->Wait();
  const Share mine = EvenShare(size, group->size(), group->rank());
  return Slice(out, dim, 0, mine.count).ContiguousCopy();
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
  return Recorded("copy_to_group", x, x.Detach(),
                  [group](const Tensor& g) { return Summed(g, group); });
}

Tensor ReduceFromGroup(const Tensor& x, const Group& group) {
  if (Alone(group)) return x;
  return Recorded("reduce_from_group", x, Summed(x, group), [](const Tensor& g) { return g; });
}

Tensor ScatterToGroup(const Tensor& x, int dim, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim);
  const int64_t size = x.size(dim);
  return Recorded("scatter_to_group", x, ShareOf(x.Detach(), dim, group),
                  [group, dim, size](const Tensor& g) { return Gathered(g, dim, size, group); });
}

Tensor GatherFromGroup(const Tensor& x, int dim, int64_t size, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim);
  return Recorded("gather_from_group", x, Gathered(x.Detach(), dim, size, group),
                  [group, dim](const Tensor& g) { return ShareOf(g, dim, group); });
}

Tensor AllGatherToGroup(const Tensor& x, int dim, int64_t size, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim);
  return Recorded("all_gather_to_group", x, Gathered(x.Detach(), dim, size, group),
                  [group, dim](const Tensor& g) { return ReduceScattered(g, dim, group); });
}

Tensor ReduceScatterToGroup(const Tensor& x, int dim, const Group& group) {
  if (Alone(group)) return x;
  dim = x.shape().Normalize(dim);
  const int64_t size = x.size(dim);
  return Recorded("reduce_scatter_to_group", x, ReduceScattered(x.Detach(), dim, group),
                  [group, dim, size](const Tensor& g) { return Gathered(g, dim, size, group); });
}

}  // namespace tessera
