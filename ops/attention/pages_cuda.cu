// SPDX-License-Identifier: Apache-2.0
// Writing pages on the GPU: a thread per word of a head.
#include <cstdint>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/attention/pages_kernel.h"

namespace tessera::cuda {
namespace {

// All sizes and strides count words here.
template <typename Word>
__global__ void WriteKernel(WritePagesArgs args) {
  const int64_t total = args.batch * args.heads * args.tokens * args.head_dim;
  const Word* x = static_cast<const Word*>(args.x);
  Word* pages = static_cast<Word*>(args.pages);
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t d = i % args.head_dim;
    const int64_t t = i / args.head_dim % args.tokens;
    const int64_t g = i / (args.head_dim * args.tokens) % args.heads;
    const int64_t b = i / (args.head_dim * args.tokens * args.heads);
    if (t >= args.counts[b]) continue;
    const int64_t to = PageElement(args, b, args.begins[b] + t);
    pages[to + g * args.page_size * args.head_dim + d] =
        x[b * args.x_batch + g * args.x_head + t * args.x_time + d];
  }
}

void WritePagesCuda(const WritePagesArgs& args) {
  const auto launch = [&](auto word) {
    using Word = decltype(word);
    const int64_t per_word = static_cast<int64_t>(sizeof(Word)) / args.element_bytes;
    WritePagesArgs words = args;
    for (int64_t* size : {&words.head_dim, &words.x_batch, &words.x_head, &words.x_time}) {
      *size /= per_word;
    }
    Launch("write_pages",
           {GridFor(words.batch * words.heads * words.tokens * words.head_dim), kThreads},
           WriteKernel<Word>, words);
  };
  const auto fits = [&](size_t bytes) {
    const auto n = static_cast<int64_t>(bytes);
    const auto whole = [&](int64_t elements) { return elements * args.element_bytes % n == 0; };
    return n >= args.element_bytes && whole(args.head_dim) && whole(args.x_batch) &&
           whole(args.x_head) && whole(args.x_time) && IsAligned(args.x, bytes) &&
           IsAligned(args.pages, bytes);
  };
  if (args.batch * args.heads * args.tokens * args.head_dim == 0) return;
  DispatchCudaWidest(fits, launch);
}

TESSERA_REGISTER_KERNEL(write_pages_kernel, DeviceType::kCuda, WritePagesCuda);

}  // namespace
}  // namespace tessera::cuda
