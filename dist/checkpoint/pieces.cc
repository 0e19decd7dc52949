// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/pieces.h"

#include <algorithm>
#include <utility>

namespace tessera::dist {
namespace {

// Elements [begin, end) of the flattening of `box`, whose dims before `dim` have one index each.
void AppendRange(const Box& box, int dim, int64_t begin, int64_t end, std::vector<Box>* boxes) {
  if (begin >= end) return;
  if (dim == box.size.ndim()) {
    boxes->push_back(box);
    return;
  }
  int64_t inner = 1;
  for (int d = dim + 1; d < box.size.ndim(); ++d) inner *= box.size[d];
  const auto rows = [&](int64_t first, int64_t count) {
    Box some = box;
    some.begin[dim] += first;
    some.size[dim] = count;
    return some;
  };
  const int64_t first = begin / inner;
  if (begin % inner != 0) {
    const int64_t stop = std::min(end, (first + 1) * inner);
    AppendRange(rows(first, 1), dim + 1, begin - first * inner, stop - first * inner, boxes);
    AppendRange(box, dim, stop, end, boxes);
    return;
  }
  const int64_t last = end / inner;
  if (last > first) boxes->push_back(rows(first, last - first));
  AppendRange(rows(last, 1), dim + 1, 0, end % inner, boxes);
}

std::vector<LocalPart> FlatParts(const CheckpointTensor& t) {
  const ElementRange range = *t.range;
  int64_t total = 0;
  for (const BoxMapping& mapping : t.placement.boxes()) total += mapping.global.size.numel();
  TESSERA_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= total, "checkpoint",
                "tensor '", t.name, "': range [", range.begin, ", ", range.end, ") of ", total,
                " elements");
  TESSERA_CHECK(t.tensor.ndim() == 1 && t.tensor.is_contiguous() &&
                    t.tensor.numel() >= range.end - range.begin,
                "checkpoint", "tensor '", t.name, "': ", t.tensor,
                " does not hold the flat range [", range.begin, ", ", range.end, ")");
  std::vector<LocalPart> parts;
  int64_t before = 0;  // elements of the boxes so far
  for (const BoxMapping& mapping : t.placement.boxes()) {
    const int64_t count = mapping.global.size.numel();
    const int64_t begin = std::max(range.begin - before, int64_t{0});
    const int64_t end = std::min(range.end - before, count);
    if (begin < end) {
      Piece piece{mapping.global};
      if (end - begin < count) piece.range = {begin, end};
      const Shape shape = piece.shape();
      parts.push_back(
          {piece, t.tensor.AsStrided(shape, ContiguousStrides(shape),
                                     t.tensor.offset() + before + begin - range.begin)});
    }
    before += count;
  }
  return parts;
}

}  // namespace

std::vector<LocalPart> LocalParts(const CheckpointTensor& t) {
  if (t.range) return FlatParts(t);
  TESSERA_CHECK(t.tensor.shape() == t.placement.local_shape(), "checkpoint", "tensor '", t.name,
                "': ", t.tensor, " is not of the placement's local shape ",
                t.placement.local_shape());
  const bool nothing = t.placement.global_shape().numel() == 0;
  std::vector<LocalPart> parts;
  for (const BoxMapping& mapping : t.placement.boxes()) {
    if (mapping.global.size.numel() == 0 && !nothing) continue;
    parts.push_back(
        {{mapping.global}, BoxView(t.tensor, {mapping.local_begin, mapping.global.size})});
  }
  return parts;
}

std::vector<Box> BoxesOf(const Piece& piece) {
  if (!piece.range) return {piece.box};
  std::vector<Box> boxes;
  AppendRange(piece.box, 0, piece.range->begin, piece.range->end, &boxes);
  return boxes;
}

std::optional<Box> Intersection(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.begin.ndim(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    const int64_t end = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]);
    if (end <= begin) return std::nullopt;
    both.begin[d] = begin;
    both.size[d] = end - begin;
  }
  return both;
}

void Subtract(const Box& hole, std::vector<Box>* boxes) {
  std::vector<Box> left;
  for (const Box& box : *boxes) {
    const std::optional<Box> both = Intersection(box, hole);
    if (!both) {
      left.push_back(box);
      continue;
    }
    // What lies before and after the hole along each dim, the dims before it within the hole.
    Box rest = box;
    for (int d = 0; d < box.begin.ndim(); ++d) {
      Box side = rest;
      side.size[d] = both->begin[d] - rest.begin[d];
      if (side.size[d] > 0) left.push_back(side);
      side.begin[d] = both->begin[d] + both->size[d];
      side.size[d] = rest.begin[d] + rest.size[d] - side.begin[d];
      if (side.size[d] > 0) left.push_back(side);
      rest.begin[d] = both->begin[d];
      rest.size[d] = both->size[d];
    }
  }
  *boxes = std::move(left);
}

int64_t CountElements(const std::vector<Box>& boxes) {
  int64_t count = 0;
  for (const Box& box : boxes) count += box.size.numel();
  return count;
}

Shape Minus(const Shape& a, const Shape& b) {
  Shape difference = a;
  for (int d = 0; d < a.ndim(); ++d) difference[d] -= b[d];
  return difference;
}

}  // namespace tessera::dist
