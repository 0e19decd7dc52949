// SPDX-License-Identifier: Apache-2.0
// Which part of a global parameter a rank holds.
//
// A parameter's placement gives its unpadded global shape and a list of boxes, each saying that a
// box of the global tensor lies at some place of the local one. An unsharded parameter has one box
// that covers everything; a tensor-parallel fused q,k,v projection has three, each split by heads;
// a vocabulary padded to a multiple of the group has a box smaller than the local tensor.
//
//   Placement p = Placement::Whole({768, 2304});
//   p.local_shape();  // [768, 2304]
//
// Checkpoints, conversion between layouts, initialisation (random bits are a function of the
// global index) and parameter counts all read placements; nothing else knows how a layer is cut.
#ifndef TESSERA_CORE_PLACEMENT_H_
#define TESSERA_CORE_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/shape.h"
#include "core/tensor.h"

namespace tessera {

// A rectangular region of a tensor.
struct Box {
  Shape begin;
  Shape size;
  friend bool operator==(const Box&, const Box&) = default;
};

// A region and where it lies on this rank.
struct BoxMapping {
  Box global;         // region of the global tensor
  Shape local_begin;  // where it begins in the local tensor; same size there
};

class Placement {
 public:
  Placement() = default;
  static Placement Whole(const Shape& shape);
  Placement(Shape global_shape, Shape local_shape, std::vector<BoxMapping> boxes);

  // Splits `dim` of the global shape into blocks of the given sizes (their sum is the dim's size);
  // of block i, this rank holds [first[i], first[i] + count[i]) of the block. The local tensor is
  // those pieces side by side; `padded_local` (if > 0) is its size along `dim` when padded.
  struct Piece {
    int64_t block_size;
    int64_t first;
    int64_t count;
  };
  static Placement Split(const Shape& global_shape, int dim, const std::vector<Piece>& pieces,
                         int64_t padded_local = 0);

  const Shape& global_shape() const { return global_shape_; }
  const Shape& local_shape() const { return local_shape_; }
  const std::vector<BoxMapping>& boxes() const { return boxes_; }
  // Whether the local tensor is the global one.
  bool is_whole() const;
  // Whether it was cut for a group of ranks (not made by Whole). The same on all of them, while one
  // of two that share a single head is_whole() and the other has nothing.
  bool is_split() const { return split_; }

 private:
  Shape global_shape_;
  Shape local_shape_;
  std::vector<BoxMapping> boxes_;
  bool split_ = false;
};

// A view of the region `box` of `t`.
Tensor BoxView(const Tensor& t, const Box& box);

// Copies this rank's part out of the global tensor / into it (padding is left alone).
void CopyGlobalToLocal(const Placement& placement, const Tensor& global, const Tensor& local);
void CopyLocalToGlobal(const Placement& placement, const Tensor& local, const Tensor& global);

// Cuts [0, total) into `parts` consecutive shares that differ by at most one; none is larger than
// the first. Share `index` as {begin, count}. A power of two of parts is made by halving again and
// again, so that the shares of more parts lie within those of fewer.
struct Share {
  int64_t begin;
  int64_t count;
};
Share EvenShare(int64_t total, int64_t parts, int64_t index);

}  // namespace tessera

#endif  // TESSERA_CORE_PLACEMENT_H_
