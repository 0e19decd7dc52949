// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/thread_pool.h"
#include "ops/attention/pages_kernel.h"

namespace tessera {
namespace {

// Rows of a task: a token alone is not worth a thread.
constexpr int64_t kGrain = 64;

void WritePagesCpu(const WritePagesArgs& args) {
  const auto bytes = static_cast<size_t>(args.head_dim * args.element_bytes);
  const char* const x = static_cast<const char*>(args.x);
  char* const pages = static_cast<char*>(args.pages);
  ParallelFor(args.batch * args.tokens,
              std::max<int64_t>(1, kGrain / std::max<int64_t>(args.heads, 1)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t b = i / args.tokens;
                  const int64_t t = i % args.tokens;
                  if (t >= args.counts[b]) continue;
                  const int64_t to = PageElement(args, b, args.begins[b] + t);
                  const int64_t from = b * args.x_batch + t * args.x_time;
                  for (int64_t g = 0; g < args.heads; ++g) {
                    const int64_t at = to + g * args.page_size * args.head_dim;
                    std::memcpy(pages + at * args.element_bytes,
                                x + (from + g * args.x_head) * args.element_bytes, bytes);
                  }
                }
              });
}

TESSERA_REGISTER_KERNEL(write_pages_kernel, DeviceType::kCpu, WritePagesCpu);

}  // namespace
}  // namespace tessera
