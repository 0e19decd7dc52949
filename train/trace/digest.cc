// SPDX-License-Identifier: Apache-2.0
#include "train/trace/digest.h"

#include <cstdio>
#include <cstring>

#include "core/thread_pool.h"

namespace tessera::train {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that spreads every bit.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t OfElement(uint64_t place, uint64_t bits) {
  return Mixed(Mixed(place + 0x9e3779b97f4a7c15) ^ bits);
}

// Of `count` elements that lie side by side, whose first has the place `first`.
template <typename Bits>
uint64_t OfRun(const std::byte* data, int64_t count, int64_t first) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    sum += OfElement(static_cast<uint64_t>(first + i), bits);
  }
  return sum;
}

uint64_t OfRun(const std::byte* data, size_t size, int64_t count, int64_t first) {
  switch (size) {
    case 1:
      return OfRun<uint8_t>(data, count, first);
    case 2:
      return OfRun<uint16_t>(data, count, first);
    case 4:
      return OfRun<uint32_t>(data, count, first);
    default:
      return OfRun<uint64_t>(data, count, first);
  }
}

// Of a box's elements, which lie at `data`, of a tensor of this shape.
uint64_t OfBox(const std::byte* data, size_t size, const Box& box, const Shape& shape) {
  const int last = shape.ndim() - 1;
  if (last < 0) return OfRun(data, size, 1, 0);
  const int64_t row = box.size[last];
  const int64_t rows = row == 0 ? 0 : box.size.numel() / row;
  uint64_t sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t first = box.begin[last];
    int64_t stride = shape[last];
    int64_t left = r;
    for (int d = last - 1; d >= 0; --d) {
      first += (box.begin[d] + left % box.size[d]) * stride;
      left /= box.size[d];
      stride *= shape[d];
    }
    sum += OfRun(data + r * row * static_cast<int64_t>(size), size, row, first);
  }
  return sum;
}

}  // namespace

uint64_t DigestOf(const Tensor& t) {
  if (t.device().is_meta()) return 0;
  const Tensor host = CopyTo(t.Detach(), Device::Cpu()).ContiguousCopy();
  return OfRun(static_cast<const std::byte*>(host.raw_data()), DTypeSize(host.dtype()),
               host.numel(), 0);
}

std::vector<PartDigest> DigestsOf(const dist::CheckpointTensor& t) {
  std::vector<PartDigest> digests;
  if (t.tensor.device().is_meta()) return digests;
  const Shape& shape = t.placement.global_shape();
  for (const dist::LocalPart& part : dist::LocalParts(t)) {
    const Tensor host = CopyTo(part.data.Detach(), Device::Cpu()).ContiguousCopy();
    const auto* at = static_cast<const std::byte*>(host.raw_data());
    const size_t size = DTypeSize(host.dtype());
    PartDigest& digest = digests.emplace_back();
    digest.part = Concat(part.piece.box.begin, part.piece.box.size);
    if (part.piece.range) {
      digest.part += Concat(":", part.piece.range->begin, "-", part.piece.range->end);
    }
    for (const Box& box : dist::BoxesOf(part.piece)) {
      digest.digest += OfBox(at, size, box, shape);
      at += box.size.numel() * static_cast<int64_t>(size);
    }
  }
  return digests;
}

uint64_t BatchDigest(const Bundle& batch) {
  uint64_t digest = 0;
  for (const auto& [name, tensor] : batch.entries()) {
    if (tensor.defined()) digest = digest * 31 + DigestOf(tensor);
  }
  return digest;
}

std::string DigestText(uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

}  // namespace tessera::train
