// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch: their descriptions travel as the kernel's argument, as many as fit,
// and blocks find their chunk in them. Included by .cu files only.
//
//   ForEachBatch<UpdateItem>(items, chunk, [&](const TensorBatch<UpdateItem>& batch) {
//     Kernel<<<batch.chunks(), threads, 0, CurrentStream()>>>(batch, ...);
//   });
//   // in the kernel
//   const ChunkPlace place = PlaceOf(batch, blockIdx.x);
#ifndef TESSERA_OPTIM_TENSOR_BATCH_CUH_
#define TESSERA_OPTIM_TENSOR_BATCH_CUH_

#include <cstdint>
#include <vector>

namespace tessera::optim {

// Arguments of a kernel may take 32 KiB.
inline constexpr int kBatchTensors = 160;

// Item has a member n, its elements.
template <typename Item>
struct TensorBatch {
  int count = 0;
  int64_t chunk = 0;  // elements of one
  // Chunks before tensor i; [count] is the number of all.
  uint32_t first_chunk[kBatchTensors + 1] = {};
  Item items[kBatchTensors];

  unsigned chunks() const { return first_chunk[count]; }
};

struct ChunkPlace {
  int tensor;
  int64_t begin;
  int64_t n;
};

template <typename Item>
__device__ __forceinline__ ChunkPlace PlaceOf(const TensorBatch<Item>& batch, uint32_t chunk) {
  // The last tensor whose first chunk is not behind this one; empty tensors have no chunk.
  int low = 0;
  int high = batch.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (batch.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t begin = int64_t{chunk - batch.first_chunk[low]} * batch.chunk;
  const int64_t left = batch.items[low].n - begin;
  return {low, begin, left < batch.chunk ? left : batch.chunk};
}

// Calls launch(batch, chunks of the batches before) for runs of items.
template <typename Item, typename Launch>
void ForEachBatch(const std::vector<Item>& items, int64_t chunk, Launch launch) {
  TensorBatch<Item> batch;
  batch.chunk = chunk;
  int64_t before = 0;
  const auto flush = [&] {
    if (batch.chunks() > 0) launch(batch, before);
    before += batch.chunks();
    batch.count = 0;
  };
  for (const Item& item : items) {
    if (item.n == 0) continue;
    const auto chunks = static_cast<uint32_t>((item.n + chunk - 1) / chunk);
    batch.items[batch.count] = item;
    batch.first_chunk[batch.count + 1] = batch.first_chunk[batch.count] + chunks;
    if (++batch.count == kBatchTensors) flush();
  }
  if (batch.count > 0) flush();
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_TENSOR_BATCH_CUH_
