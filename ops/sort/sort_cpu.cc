// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/thread_pool.h"
#include "ops/sort/sort_kernel.h"
#include "ops/sort/sort_key.h"

namespace tessera {
namespace {

struct Item {
  uint64_t key;
  int64_t index;
  friend bool operator<(const Item& a, const Item& b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
  }
};

// Half precision sorts as float32 does.
template <typename T>
uint64_t KeyOf(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return SortKey(static_cast<float>(value));
  } else {
    return SortKey(value);
  }
}

void KeysOfColumn(const SortArgs& args, int64_t first, std::vector<Item>& items) {
  DispatchAll(args.dtype, "sort", [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(args.x) + first;
    for (int64_t i = 0; i < args.dim.count; ++i) {
      const uint64_t key = KeyOf(x[i * args.dim.inner]);
      items[static_cast<size_t>(i)] = {args.descending ? ~key : key, i};
    }
  });
}

void SortCpu(const SortArgs& args) {
  const int64_t outer = args.dim.outer, count = args.dim.count, inner = args.dim.inner;
  const int64_t grain = std::max<int64_t>(1, 4096 / count);
  ParallelFor(outer * inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<Item> items(static_cast<size_t>(count));
    for (int64_t c = begin; c < end; ++c) {
      const int64_t o = c / inner;
      KeysOfColumn(args, o * count * inner + c % inner, items);
      if (args.take < count) {
        std::partial_sort(items.begin(), items.begin() + args.take, items.end());
      } else {
        std::sort(items.begin(), items.end());
      }
      int64_t* indices = args.indices + o * args.take * inner + c % inner;
      for (int64_t i = 0; i < args.take; ++i)
        indices[i * inner] = items[static_cast<size_t>(i)].index;
    }
  });
}

TESSERA_REGISTER_KERNEL(sort_kernel, DeviceType::kCpu, SortCpu);

}  // namespace
}  // namespace tessera
