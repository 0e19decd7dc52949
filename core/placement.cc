// SPDX-License-Identifier: Apache-2.0
#include "core/placement.h"

#include <algorithm>

namespace tessera {

Placement::Placement(Shape global_shape, Shape local_shape, std::vector<BoxMapping> boxes)
    : global_shape_(global_shape),
      local_shape_(local_shape),
      boxes_(std::move(boxes)),
      split_(true) {
  for (const BoxMapping& mapping : boxes_) {
    for (int d = 0; d < global_shape_.ndim(); ++d) {
      const int64_t size = mapping.global.size[d];
      TESSERA_CHECK(size >= 0 && mapping.global.begin[d] >= 0 &&
                        mapping.global.begin[d] + size <= global_shape_[d] &&
                        mapping.local_begin[d] >= 0 &&
                        mapping.local_begin[d] + size <= local_shape_[d],
                    "placement", "a box leaves global shape ", global_shape_, " or local shape ",
                    local_shape_);
    }
  }
}

Placement Placement::Whole(const Shape& shape) {
  Shape origin = shape;
  for (int d = 0; d < shape.ndim(); ++d) origin[d] = 0;
  Placement whole(shape, shape, {{{origin, shape}, origin}});
  whole.split_ = false;
  return whole;
}

Placement Placement::Split(const Shape& global_shape, int dim, const std::vector<Piece>& pieces,
                           int64_t padded_local) {
  Shape origin = global_shape;
  for (int d = 0; d < global_shape.ndim(); ++d) origin[d] = 0;
  std::vector<BoxMapping> boxes;
  int64_t block_begin = 0;
  int64_t local_begin = 0;
  for (const Piece& piece : pieces) {
    BoxMapping mapping{{origin, global_shape}, origin};
    mapping.global.begin[dim] = block_begin + piece.first;
    mapping.global.size[dim] = piece.count;
    mapping.local_begin[dim] = local_begin;
    // A piece that follows the one before in both tensors only makes its box longer: on one rank
    // the blocks of a fused projection are one box.
    const bool continues =
        !boxes.empty() &&
        boxes.back().global.begin[dim] + boxes.back().global.size[dim] == mapping.global.begin[dim];
    if (piece.count > 0 && continues) {
      boxes.back().global.size[dim] += piece.count;
    } else if (piece.count > 0) {
      boxes.push_back(mapping);
    }
    block_begin += piece.block_size;
    local_begin += piece.count;
  }
  TESSERA_CHECK(block_begin == global_shape[dim], "placement", "blocks add up to ", block_begin,
                " along dim ", dim, " of ", global_shape);
  Shape local_shape = global_shape;
  local_shape[dim] = std::max(local_begin, padded_local);
  return Placement(global_shape, local_shape, std::move(boxes));
}

bool Placement::is_whole() const {
  return boxes_.size() == 1 && boxes_[0].global.size == global_shape_ &&
         local_shape_ == global_shape_;
}

Tensor BoxView(const Tensor& t, const Box& box) {
  int64_t offset = t.offset();
  for (int d = 0; d < t.ndim(); ++d) offset += box.begin[d] * t.strides()[d];
  return t.AsStrided(box.size, t.strides(), offset);
}

void CopyGlobalToLocal(const Placement& placement, const Tensor& global, const Tensor& local) {
  TESSERA_CHECK(
      global.shape() == placement.global_shape() && local.shape() == placement.local_shape(),
      "placement", "cannot copy ", global, " to ", local, ": global shape is ",
      placement.global_shape(), ", local shape is ", placement.local_shape());
  for (const BoxMapping& m : placement.boxes()) {
    CopyInto(BoxView(local, {m.local_begin, m.global.size}), BoxView(global, m.global));
  }
}

void CopyLocalToGlobal(const Placement& placement, const Tensor& local, const Tensor& global) {
  TESSERA_CHECK(
      global.shape() == placement.global_shape() && local.shape() == placement.local_shape(),
      "placement", "cannot copy ", local, " to ", global, ": global shape is ",
      placement.global_shape(), ", local shape is ", placement.local_shape());
  for (const BoxMapping& m : placement.boxes()) {
    CopyInto(BoxView(global, m.global), BoxView(local, {m.local_begin, m.global.size}));
  }
}

Share EvenShare(int64_t total, int64_t parts, int64_t index) {
  Share share = {0, total};
  if ((parts & (parts - 1)) != 0) {
    const int64_t base = total / parts;
    const int64_t extra = total % parts;
    return {index * base + std::min(index, extra), base + (index < extra ? 1 : 0)};
  }
  for (int64_t half = parts / 2; half > 0; half /= 2) {
    const int64_t first = (share.count + 1) / 2;
    if ((index & half) != 0) share.begin += first;
    share.count = (index & half) == 0 ? first : share.count - first;
  }
  return share;
}

}  // namespace tessera
