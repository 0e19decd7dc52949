// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh/unshard.h"

#include <vector>

#include "base/error.h"

namespace tessera::dist {
namespace {

// A placement as numbers: the local shape, then of each box where it begins in the global tensor,
// its size, and where it begins in the local one.
std::vector<int64_t> Encode(const Placement& placement) {
  std::vector<int64_t> numbers;
  const auto add = [&](const Shape& shape) {
    numbers.insert(numbers.end(), shape.begin(), shape.end());
  };
  add(placement.local_shape());
  for (const BoxMapping& box : placement.boxes()) {
    add(box.global.begin);
    add(box.global.size);
    add(box.local_begin);
  }
  return numbers;
}

Placement Decode(const Shape& global, const std::vector<int64_t>& numbers) {
  const int ndim = global.ndim();
  size_t next = 0;
  const auto take = [&] {
    Shape shape = global;
    for (int d = 0; d < ndim; ++d) shape[d] = numbers[next++];
    return shape;
  };
  const Shape local = take();
  std::vector<BoxMapping> boxes;
  while (next < numbers.size()) {
    const Shape begin = take();
    const Shape size = take();
    boxes.push_back({{begin, size}, take()});
  }
  return Placement(global, local, std::move(boxes));
}

// Every rank's placement.
std::vector<Placement> GatherPlacements(const Placement& mine, const Group& group) {
  const std::vector<int64_t> numbers = Encode(mine);
  const Tensor lengths = Empty({group->size()}, DType::kInt64);
  group->AllGather(lengths, Tensor::FromVector<int64_t>({std::ssize(numbers)}, {1}))->Wait();
  std::vector<Placement> all;
  for (int r = 0; r < group->size(); ++r) {
    std::vector<int64_t> theirs = numbers;
    theirs.resize(static_cast<size_t>(lengths.data<int64_t>()[r]));
    const Tensor message = Tensor::FromVector<int64_t>(theirs, {std::ssize(theirs)});
    group->Broadcast(message, r)->Wait();
    all.push_back(Decode(mine.global_shape(), message.ToVector<int64_t>()));
  }
  return all;
}

}  // namespace

Tensor Unshard(const Tensor& local, const Placement& placement, const Group& group) {
  if (group->size() == 1 || placement.global_shape().ndim() == 0 || placement.is_whole()) {
    return local.Detach();
  }
  const std::vector<Placement> placements = GatherPlacements(placement, group);
  const Tensor whole = Empty(placement.global_shape(), local.dtype(), local.device());
  int64_t elements = 0;
  for (int r = 0; r < group->size(); ++r) {
    const Placement& theirs = placements[static_cast<size_t>(r)];
    for (const BoxMapping& box : theirs.boxes()) elements += box.global.size.numel();
    if (theirs.boxes().empty()) continue;
    const Tensor part = r == group->rank()
                            ? local.Detach().ContiguousCopy()
                            : Empty(theirs.local_shape(), local.dtype(), local.device());
    group->Broadcast(part, r)->Wait();
    CopyLocalToGlobal(theirs, part, whole);
  }
  // A rank that is alone in a dry run takes the others' parts to be like its own.
  TESSERA_CHECK(whole.device().is_meta() || elements >= whole.numel(), "unshard",
                "the ranks of group ", group->name(), " hold ", elements, " of ", whole.numel(),
                " elements");
  return whole;
}

Tensor Unshard(const nn::Parameter& parameter, const Mesh& mesh) {
  const Tensor part = parameter.tensor.Detach();
  const Group& ranks = parameter.expert_group;
  if (ranks == nullptr) return Unshard(part, parameter.placement, mesh.tp());
  const Tensor root = Tensor::FromVector<int64_t>({parameter.elsewhere ? -1 : ranks->rank()}, {1});
  ranks->AllReduce(root, ReduceOp::kMax)->Wait();
  const Tensor whole = parameter.elsewhere
                           ? Empty(parameter.placement.global_shape(), part.dtype(), part.device())
                           : Unshard(part, parameter.placement, mesh.tp()).ContiguousCopy();
  // A rank that is alone in a dry run hears of no owner: some other rank is.
  const auto owner = static_cast<int>(root.data<int64_t>()[0]);
  const bool alone = owner < 0 && whole.device().is_meta();
  ranks->Broadcast(whole, alone ? (ranks->rank() + 1) % ranks->size() : owner)->Wait();
  return whole;
}

}  // namespace tessera::dist
