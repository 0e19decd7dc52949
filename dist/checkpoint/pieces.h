// SPDX-License-Identifier: Apache-2.0
// Pieces of an unsharded tensor: how checkpoints cut it, and how two ways of cutting meet.
//
//   for (const LocalPart& part : LocalParts(t)) Write(part.piece, part.data);
//
// A piece is a box of the unsharded tensor, or an element range of a box's row-major flattening.
// Everything is reduced to boxes: a range is at most 2 ndim - 1 of them.
#ifndef TESSERA_DIST_CHECKPOINT_PIECES_H_
#define TESSERA_DIST_CHECKPOINT_PIECES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/placement.h"
#include "core/tensor.h"

namespace tessera::dist {

// Elements [begin, end) of something flattened.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// A tensor to save or to load into: the local part and where it belongs.
//
// Without `range`, `tensor` has the placement's local shape. With it, `tensor` is a contiguous 1-d
// tensor whose first elements are [begin, end) of the placement's boxes, each flattened row-major,
// one after another (what a flat shard of ZeRO holds); elements beyond are padding. Several
// entries may have one name: each is a part of the same tensor.
struct CheckpointTensor {
  std::string name;
  Tensor tensor;
  Placement placement;
  std::optional<ElementRange> range = {};
};

// A box of the unsharded tensor, or a run of the elements of one.
struct Piece {
  Box box;
  std::optional<ElementRange> range = {};  // of the box's flattening; nullopt: all of it
  int64_t numel() const { return range ? range->end - range->begin : box.size.numel(); }
  // What its elements are stored as: the box's shape, or one dim.
  Shape shape() const { return range ? Shape{numel()} : box.size; }
};

// A piece and the local elements of it: a view of piece.shape().
struct LocalPart {
  Piece piece;
  Tensor data;
};

// The parts of `t` that hold elements (all of them where the unsharded tensor is empty). Throws
// Error where the tensor does not fit its placement and range.
std::vector<LocalPart> LocalParts(const CheckpointTensor& t);

// The piece as boxes whose flattenings, one after another, are the piece's.
std::vector<Box> BoxesOf(const Piece& piece);

// The part that two boxes of one tensor share; nullopt where they are disjoint.
std::optional<Box> Intersection(const Box& a, const Box& b);

// Takes `hole` out of what disjoint `boxes` cover.
void Subtract(const Box& hole, std::vector<Box>* boxes);
int64_t CountElements(const std::vector<Box>& boxes);

// a - b, by dims.
Shape Minus(const Shape& a, const Shape& b);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_PIECES_H_
