// SPDX-License-Identifier: Apache-2.0
// The IDX arrays of MNIST: pictures and their labels.
//
//   TESSERA_ASSIGN_OR_RETURN(IdxArray images, ReadIdx("train-images-idx3-ubyte.gz"));
//   Image first = images.ImageAt(0);
#ifndef TESSERA_DATA_IMAGE_IDX_H_
#define TESSERA_DATA_IMAGE_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/image/image.h"

namespace tessera::data {

// An array of bytes: [10000, 28, 28] images or [10000] labels.
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;

  // Entry i of the first dim of [count, height, width].
  Image ImageAt(int64_t i) const;
};

// Plain or gzipped. InvalidArgument for elements that are not bytes, a size that the file does not
// have, or more than `max_bytes`.
StatusOr<IdxArray> ReadIdx(const std::string& path, int64_t max_bytes = int64_t{1} << 32);

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_IDX_H_
