// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "ops/attention/attention.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kGroups = 2;
constexpr int64_t kHeads = 4;

Tensor Int32(const std::vector<int64_t>& values, const Shape& shape) {
  const Tensor t = Empty(shape, DType::kInt32);
  std::copy(values.begin(), values.end(), t.data<int32_t>());
  return t;
}

struct Case {
  int64_t head_dim;
  int64_t page_size;
  std::vector<int64_t> lengths;  // keys of each row
  int64_t queries;
  int64_t window = 0;
  bool padding = false;
};

// The pages of the rows, in no order; what no row has is no number.
struct Paged {
  Tensor k, v;
  Tensor table;
};

Paged InPages(const Case& c, const Tensor& k, const Tensor& v, std::mt19937& random) {
  const int64_t longest = k.size(2);
  const int64_t per_row = (longest + c.page_size - 1) / c.page_size;
  std::vector<int64_t> pages(static_cast<size_t>(kRows * per_row + 2));
  for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<int64_t>(p);
  std::shuffle(pages.begin(), pages.end(), random);
  Paged paged;
  const Shape shape = {std::ssize(pages), kGroups, c.page_size, c.head_dim};
  paged.k = CopyTo(CastCopy(Full(shape, NAN, DType::kFloat32), k.dtype()), k.device());
  paged.v = CopyTo(CastCopy(Full(shape, NAN, DType::kFloat32), k.dtype()), k.device());
  pages.resize(static_cast<size_t>(kRows * per_row));
  for (int64_t b = 0; b < kRows; ++b) {
    // Entries behind a row's last key are not read.
    for (int64_t n = (c.lengths[static_cast<size_t>(b)] + c.page_size - 1) / c.page_size;
         n < per_row; ++n) {
      pages[static_cast<size_t>(b * per_row + n)] = 1 << 30;
    }
  }
  paged.table = CopyTo(Int32(pages, {kRows, per_row}), k.device());
  // In two steps, the second of which begins in the middle of pages.
  std::vector<int64_t> first;
  std::vector<int64_t> second;
  for (const int64_t length : c.lengths) {
    first.push_back(length / 3);
    second.push_back(length - length / 3);
  }
  const auto write = [&](const std::vector<int64_t>& begins, const std::vector<int64_t>& counts) {
    const PagePlaces places = {.table = paged.table,
                               .begins = CopyTo(Int32(begins, {kRows}), k.device()),
                               .counts = CopyTo(Int32(counts, {kRows}), k.device())};
    for (const auto& [pool, from] : {std::pair(paged.k, k), std::pair(paged.v, v)}) {
      std::vector<Tensor> rows;
      for (int64_t b = 0; b < kRows; ++b) {
        const int64_t begin = begins[static_cast<size_t>(b)];
        const int64_t rest = longest - begin;
        rows.push_back(Pad(Slice(Slice(from, 0, b, 1), 2, begin, rest), 2, 0, longest - rest));
      }
      WritePages(pool, Cat(rows, 0), places);
    }
  };
  write({0, 0, 0}, first);
  write(first, second);
  return paged;
}

void ExpectSameBits(const Tensor& got, const Tensor& expected) {
  const Tensor a = CopyTo(got, Device::Cpu()).ContiguousCopy();
  const Tensor b = CopyTo(expected, Device::Cpu()).ContiguousCopy();
  ASSERT_EQ(a.shape(), b.shape());
  const auto bytes = static_cast<size_t>(a.numel()) * DTypeSize(a.dtype());
  EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), bytes), 0);
}

void CheckPages(const Case& c, DType dtype, const Device& device, uint64_t seed) {
  const NoGrad no_grad;
  std::mt19937 random(static_cast<uint32_t>(seed));
  const int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const auto values = [&](int64_t heads, int64_t tokens, uint64_t salt) {
    return CopyTo(
        CastCopy(RandomTensor({kRows, heads, tokens, c.head_dim}, 10 * seed + salt), dtype),
        device);
  };
  const Tensor q = values(kHeads, c.queries, 1);
  const Tensor k = values(kGroups, longest, 2);
  const Tensor v = values(kGroups, longest, 3);
  AttentionOptions options;
  options.causal = true;
  options.window = c.window;
  std::vector<int64_t> offsets;
  for (const int64_t length : c.lengths) offsets.push_back(length - c.queries);
  options.query_offsets = CopyTo(Int32(offsets, {kRows}), device);
  options.key_length = CopyTo(Int32(c.lengths, {kRows}), device);
  if (c.padding) {
    Tensor keep = Full({kRows, longest}, 1, DType::kBool);
    for (int64_t x = 0; x < keep.numel(); x += 5) keep.data<bool>()[x] = false;
    options.key_padding = CopyTo(keep, device);
  }
  const AttentionResult whole = Attention(q, k, v, options);
  const Paged paged = InPages(c, k, v, random);
  options.pages = paged.table;
  options.paged_keys = longest;
  const AttentionResult in_pages = Attention(q, paged.k, paged.v, options);
  ExpectSameBits(in_pages.output, whole.output);
  ExpectSameBits(in_pages.lse, whole.lse);
  // Nor do they depend on the rows beside it, some of which are longer.
  for (int64_t b = 0; b < kRows; ++b) {
    const int64_t length = c.lengths[static_cast<size_t>(b)];
    AttentionOptions alone = options;
    alone.paged_keys = length;
    alone.pages =
        Slice(Slice(paged.table, 0, b, 1), 1, 0, (length + c.page_size - 1) / c.page_size);
    alone.query_offsets = Slice(options.query_offsets, 0, b, 1);
    alone.key_length = Slice(options.key_length, 0, b, 1);
    if (c.padding) alone.key_padding = Slice(Slice(options.key_padding, 0, b, 1), 1, 0, length);
    const AttentionResult row = Attention(Slice(q, 0, b, 1), paged.k, paged.v, alone);
    ExpectSameBits(row.output, Slice(in_pages.output, 0, b, 1));
    ExpectSameBits(row.lse, Slice(in_pages.lse, 0, b, 1));
  }
}

std::vector<Case> Cases() {
  return {
      {.head_dim = 8, .page_size = 32, .lengths = {40, 3, 97}, .queries = 1},
      {.head_dim = 64, .page_size = 32, .lengths = {200, 96, 31}, .queries = 3},
      {.head_dim = 20, .page_size = 7, .lengths = {1, 2, 100}, .queries = 1},
      {.head_dim = 16, .page_size = 1, .lengths = {5, 9, 70}, .queries = 2},
      {.head_dim = 128, .page_size = 100, .lengths = {300, 299, 9}, .queries = 9},
      {.head_dim = 32, .page_size = 16, .lengths = {50, 150, 99}, .queries = 1, .window = 20},
      {.head_dim = 24, .page_size = 32, .lengths = {65, 128, 33}, .queries = 4, .padding = true},
      // Of several chunks (kDecodeChunk).
      {.head_dim = 64, .page_size = 32, .lengths = {0, 700, 129}, .queries = 1},
      {.head_dim = 128, .page_size = 24, .lengths = {256, 128, 310}, .queries = 2},
      {.head_dim = 256, .page_size = 200, .lengths = {127, 257, 10}, .queries = 8},
      {.head_dim = 16, .page_size = 16, .lengths = {500, 40, 300}, .queries = 1, .window = 150}};
}

TEST(PagesTest, AttentionHasTheBitsOfKeysInOnePiece) {
  for (const Device& device : TestDevices()) {
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (CpuIsa isa : kKernelIsas) {
        if (isa > DetectedIsa() || (!device.is_cpu() && isa != kKernelIsas[0])) continue;
        SetActiveIsa(isa);
        uint64_t seed = 1;
        for (const Case& c : Cases()) {
          SCOPED_TRACE(
              Concat(device, " ", dtype, " ", CpuIsaName(isa), " page size ", c.page_size));
          CheckPages(c, dtype, device, seed++);
        }
      }
      SetActiveIsa(DetectedIsa());
    }
  }
}

TEST(PagesTest, WhatDoesNotGoTogetherIsRefused) {
  const Tensor pages = Zeros({4, 2, 8, 4}, DType::kFloat32);
  const Tensor x = Zeros({1, 2, 3, 4}, DType::kFloat32);
  const PagePlaces places = {
      .table = Int32({0}, {1, 1}), .begins = Int32({0}, {1}), .counts = Int32({3}, {1})};
  WritePages(pages, x, places);
  EXPECT_THROW(WritePages(pages, Zeros({1, 1, 3, 4}, DType::kFloat32), places), Error);
  EXPECT_THROW(WritePages(pages, Zeros({1, 2, 3, 4}, DType::kFloat64), places), Error);
  EXPECT_THROW(WritePages(pages, Zeros({2, 2, 3, 4}, DType::kFloat32), places), Error);
  AttentionOptions options;
  options.pages = places.table;
  options.paged_keys = 9;
  EXPECT_THROW(Attention(x, pages, pages, options), Error);  // 9 keys in a page of 8
  options.paged_keys = 8;
  EXPECT_NO_THROW(Attention(x, pages, pages, options));
  const Tensor q = Zeros({1, 2, 3, 4}, DType::kFloat32);
  RequireGrad(q);
  EXPECT_THROW(Attention(q, pages, pages, options), Error);
}

}  // namespace
}  // namespace tessera
