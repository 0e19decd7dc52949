// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/flash_cpu.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "core/cpu/every_isa.h"
#include "core/cpu/scratch.h"
#include "core/cpu_isa.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "ops/attention/flash_kernel.h"

namespace tessera {
namespace {

constexpr IsaTable<const FlashForwardKernel> kForward{TESSERA_FOR_EVERY_ISA(kFlashForward)};
constexpr IsaTable<const FlashBackwardKernel> kBackward{TESSERA_FOR_EVERY_ISA(kFlashBackward)};

constinit thread_local ThreadScratch scratch;

FlashElement ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return FlashElement::kBFloat16;
    case DType::kFloat16:
      return FlashElement::kFloat16;
    default:
      return FlashElement::kFloat32;
  }
}

void Check(const FlashArgs& args) {
  constexpr const char* kName = "flash_attention";
  TESSERA_CHECK(args.batch >= 0 && args.heads >= 0 && args.kv_heads >= 0 && args.q_len >= 0 &&
                    args.k_len >= 0 && args.head_dim >= 0,
                kName, "negative size: batch ", args.batch, ", heads ", args.heads, ", kv_heads ",
                args.kv_heads, ", q_len ", args.q_len, ", k_len ", args.k_len, ", head_dim ",
                args.head_dim);
  TESSERA_CHECK(IsFloating(args.dtype), kName, "unsupported dtype ", args.dtype);
  if (args.kv_head_of == nullptr) {
    TESSERA_CHECK(args.heads == 0 || (args.kv_heads > 0 && args.heads % args.kv_heads == 0), kName,
                  args.heads, " heads do not divide into ", args.kv_heads, " key/value heads");
  } else {
    for (int64_t h = 0; h < args.heads; ++h) {
      TESSERA_CHECK(args.kv_head_of[h] >= 0 && args.kv_head_of[h] < args.kv_heads, kName, "head ",
                    h, " uses key/value head ", args.kv_head_of[h], " of ", args.kv_heads);
    }
  }
  TESSERA_CHECK((args.query_document == nullptr) == (args.key_document == nullptr), kName,
                "document ids of queries and keys are given together or not at all");
  TESSERA_CHECK(args.pages.table == nullptr ||
                    (args.pages.page_size > 0 &&
                     args.k_len <= args.pages.pages_per_row * args.pages.page_size),
                kName, args.k_len, " keys in ", args.pages.pages_per_row, " pages of ",
                args.pages.page_size);
  TESSERA_CHECK(args.prefix_length == nullptr || args.causal, kName,
                "a prefix length needs the causal mask");
  TESSERA_CHECK(args.window >= 0, kName, "a window of ", args.window);
  TESSERA_CHECK(args.softcap == 0 || (args.softcap > 0 && args.bias == nullptr), kName,
                "a softcap of ", args.softcap, ": above 0, and without a bias");
  TESSERA_CHECK(args.dropout.p >= 0.0f && args.dropout.p < 1.0f, kName, "dropout probability ",
                args.dropout.p, " is not in [0, 1)");
  if (args.bias != nullptr) {
    const bool wide = args.dtype == DType::kFloat64;
    TESSERA_CHECK(IsFloating(args.bias_dtype) && (args.bias_dtype == DType::kFloat64) == wide,
                  kName, "a bias of ", args.bias_dtype, " does not go with ", args.dtype);
  }
}

// Sets the elements of dbias to zero: each once, dimensions of stride 0 counting one.
template <typename E>
void ClearBiasGradient(const FlashBackwardArgs& args) {
  const FlashArgs& f = args.forward;
  const FlashBiasStrides& s = args.dbias_stride;
  E* const data = static_cast<E*>(args.dbias);
  const auto size = [](int64_t n, int64_t stride) {
    return stride == 0 ? std::min<int64_t>(n, 1) : n;
  };
  const int64_t batch = size(f.batch, s.batch), heads = size(f.heads, s.head);
  const int64_t queries = size(f.q_len, s.query), keys = size(f.k_len, s.key);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        E* row = data + b * s.batch + h * s.head + i * s.query;
        for (int64_t j = 0; j < keys; ++j) row[j * s.key] = E{0};
      }
    }
  }
}

}  // namespace

void FlashForward(const FlashArgs& args) {
  Check(args);
  if (args.dtype == DType::kFloat64) {
    ParallelFor(args.batch * args.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        FlashForwardFloat64(args, task / args.heads, task % args.heads);
      }
    });
    return;
  }
  const FlashForwardKernel& kernel = *kForward.Select();
  const FlashElement element = ElementOf(args.dtype), bias_element = ElementOf(args.bias_dtype);
  const int64_t size = kernel.scratch(args);
  const int64_t chunks = (args.q_len + kFlashQueryChunk - 1) / kFlashQueryChunk;
  ParallelFor(args.batch * args.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    float* buffer = scratch.Get<float>(size);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task / chunks;
      // The last queries see most keys under a causal mask: they go first.
      const int64_t query = (chunks - 1 - task % chunks) * kFlashQueryChunk;
      kernel.run(args, element, bias_element, head / args.heads, head % args.heads, query,
                 std::min(kFlashQueryChunk, args.q_len - query), buffer);
    }
  });
}

void FlashBackward(const FlashBackwardArgs& args) {
  const FlashArgs& f = args.forward;
  Check(f);
  TESSERA_CHECK(f.pages.table == nullptr, "flash_attention", "pages have no gradient");
  TESSERA_CHECK(args.dbias == nullptr || f.bias != nullptr, "flash_attention",
                "a gradient of the bias is asked for, but there is no bias");
  const bool wide = f.dtype == DType::kFloat64;
  // Tasks share no element of dbias: where it is the same along the batch or the heads, one task
  // takes all of those.
  bool join_batch = false, join_heads = false;
  if (args.dbias != nullptr) {
    const FlashBiasStrides &s = f.bias_stride, &t = args.dbias_stride;
    TESSERA_CHECK((s.batch != 0 || t.batch == 0) && (s.head != 0 || t.head == 0) &&
                      (s.query != 0 || t.query == 0) && (s.key != 0 || t.key == 0),
                  "flash_attention", "the gradient of a broadcast bias is of the bias' shape");
    join_batch = args.dbias_stride.batch == 0;
    join_heads = args.dbias_stride.head == 0;
    if (wide) {
      ClearBiasGradient<double>(args);
    } else {
      ClearBiasGradient<float>(args);
    }
  }
  const FlashBackwardKernel& kernel = *kBackward.Select();
  const FlashElement element = ElementOf(f.dtype), bias_element = ElementOf(f.bias_dtype);
  const int64_t size = wide ? 0 : kernel.scratch(f);
  const int64_t batch_tasks = join_batch ? std::min<int64_t>(f.batch, 1) : f.batch;
  const int64_t head_tasks = join_heads ? std::min<int64_t>(f.kv_heads, 1) : f.kv_heads;
  ParallelFor(batch_tasks * head_tasks, 1, [&](int64_t begin, int64_t end) {
    float* buffer = scratch.Get<float>(size);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b0 = task / head_tasks, g0 = task % head_tasks;
      for (int64_t b = b0; b < (join_batch ? f.batch : b0 + 1); ++b) {
        for (int64_t g = g0; g < (join_heads ? f.kv_heads : g0 + 1); ++g) {
          if (wide) {
            FlashBackwardFloat64(args, b, g);
          } else {
            kernel.run(args, element, bias_element, b, g, buffer);
          }
        }
      }
    }
  });
}

}  // namespace tessera
