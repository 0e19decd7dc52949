// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/testing/emulation/grid.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cuda/testing/emulation/coroutine.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tessera::cuda::emulation {
namespace {

constexpr size_t kSharedBytes = 256 << 10;

enum class Order { kForward, kReverse, kMixed };

struct Barrier {
  int alive = 0;  // threads that have not returned
  int arrived = 0;
  unsigned generation = 0;
  int ored[2] = {};  // by the parity of generations
};

struct Warp {
  Barrier barrier;
  LaneSlot slots[2][kWarpLanes];
  void (*combine)(LaneSlot*) = nullptr;
};

struct Copy {
  void* to;
  const void* from;
};

struct Thread {
  enum class State { kNew, kRunning, kWaiting, kDone };
  State state = State::kNew;
  uint3 index{};
  Coroutine* coroutine = nullptr;
  const Barrier* barrier = nullptr;  // that it waits for to leave `generation`
  unsigned generation = 0;
  std::vector<std::vector<Copy>> copies;  // groups, the last one open
};

// The block that runs, and what runs it.
class Block {
 public:
  void Run(const dim3& threads, const std::function<void()>& body);

  void Wait(Barrier* barrier);
  Barrier& barrier() { return barrier_; }
  Warp& warp() { return warps_[static_cast<size_t>(current_ / kWarpLanes)]; }
  int current() const { return current_; }
  Thread& thread() { return threads_[static_cast<size_t>(current_)]; }

 private:
  static void RunThreads(void* block);
  void Become(int thread);
  void Return();
  bool MayGoOn(const Thread& t) const {
    return t.state == Thread::State::kNew ||
           (t.state == Thread::State::kWaiting && t.barrier->generation != t.generation);
  }
  void ChooseOrder();

  int count_ = 0;
  int left_ = 0;
  int current_ = 0;
  size_t cursor_ = 0;  // into order_
  const std::function<void()>* body_ = nullptr;
  Barrier barrier_;
  std::vector<Warp> warps_;
  std::vector<Thread> threads_;
  std::vector<int> order_;
  std::vector<std::unique_ptr<Coroutine>> coroutines_;
  std::vector<Coroutine*> idle_;
};

Order ChosenOrder() {
  static const Order order = [] {
    const char* setting = std::getenv("TESSERA_EMULATION_ORDER");
    const std::string_view name = setting != nullptr ? setting : "forward";
    if (name == "forward") return Order::kForward;
    if (name == "reverse") return Order::kReverse;
    if (name == "mixed") return Order::kMixed;
    std::fprintf(stderr, "TESSERA_EMULATION_ORDER: forward, reverse or mixed, not %s\n", setting);
    std::exit(1);
  }();
  return order;
}

// Fisher and Yates, with numbers that are the same in every run.
void Mix(std::vector<int>* order) {
  static uint32_t state = 12345;
  for (size_t n = order->size(); n > 1; --n) {
    state = state * 1664525u + 1013904223u;
    std::swap((*order)[n - 1], (*order)[(state >> 8) % n]);
  }
}

void Block::ChooseOrder() {
  if (ChosenOrder() == Order::kMixed) Mix(&order_);
}

void Block::Become(int thread) {
  current_ = thread;
  threadIdx = this->thread().index;
  this->thread().state = Thread::State::kRunning;
}

// A coroutine takes one new thread after another, as long as they return without waiting.
void Block::RunThreads(void* block) {
  Block& b = *static_cast<Block*>(block);
  for (;;) {
    (*b.body_)();
    Coroutine* coroutine = b.thread().coroutine;
    b.Return();
    const size_t next = b.cursor_ + 1;
    if (next < b.order_.size() &&
        b.threads_[static_cast<size_t>(b.order_[next])].state == Thread::State::kNew) {
      b.cursor_ = next;
      b.Become(b.order_[next]);
      b.thread().coroutine = coroutine;
      continue;
    }
    b.idle_.push_back(coroutine);
    coroutine->Leave();
  }
}

void Block::Return() {
  Thread& t = thread();
  t.state = Thread::State::kDone;
  --left_;
  Warp& warp = this->warp();
  for (Barrier* barrier : {&barrier_, &warp.barrier}) {
    --barrier->alive;
    if (barrier->alive > 0 && barrier->arrived == barrier->alive) {
      if (barrier == &warp.barrier && warp.combine != nullptr) {
        warp.combine(warp.slots[barrier->generation % 2]);
      }
      barrier->arrived = 0;
      ++barrier->generation;
    }
  }
}

void Block::Wait(Barrier* barrier) {
  Thread& t = thread();
  const unsigned generation = barrier->generation;
  if (++barrier->arrived == barrier->alive) {
    barrier->arrived = 0;
    ++barrier->generation;
    return;
  }
  t.state = Thread::State::kWaiting;
  t.barrier = barrier;
  t.generation = generation;
  const int me = current_;
  t.coroutine->Leave();
  Become(me);
}

void Block::Run(const dim3& threads, const std::function<void()>& body) {
  body_ = &body;
  const auto count = static_cast<int>(threads.x * threads.y * threads.z);
  if (count != count_) {
    count_ = count;
    threads_.assign(static_cast<size_t>(count), {});
    warps_.resize(static_cast<size_t>((count + kWarpLanes - 1) / kWarpLanes));
    order_.resize(static_cast<size_t>(count));
  }
  std::iota(order_.begin(), order_.end(), 0);
  if (ChosenOrder() == Order::kReverse) std::reverse(order_.begin(), order_.end());
  barrier_ = {};
  barrier_.alive = count;
  for (Warp& warp : warps_) {
    warp.barrier = {};
    warp.combine = nullptr;
  }
  for (int i = 0; i < count; ++i) {
    Thread& t = threads_[static_cast<size_t>(i)];
    t.state = Thread::State::kNew;
    const auto n = static_cast<unsigned>(i);
    t.index = {n % threads.x, n / threads.x % threads.y, n / (threads.x * threads.y)};
    t.copies.clear();
    ++warps_[static_cast<size_t>(i / kWarpLanes)].barrier.alive;
  }
  left_ = count;
  while (left_ > 0) {
    bool moved = false;
    ChooseOrder();
    for (cursor_ = 0; cursor_ < order_.size(); ++cursor_) {
      const int i = order_[cursor_];
      Thread& t = threads_[static_cast<size_t>(i)];
      if (!MayGoOn(t)) continue;
      moved = true;
      if (t.state == Thread::State::kNew) {
        if (idle_.empty()) {
          coroutines_.push_back(std::make_unique<Coroutine>(RunThreads, this));
          idle_.push_back(coroutines_.back().get());
        }
        t.coroutine = idle_.back();
        idle_.pop_back();
        Become(i);
      }
      t.coroutine->Enter();
    }
    if (!moved) KernelFault("its threads wait for one another without end");
  }
}

Block& TheBlock() {
  static auto* block = new Block;
  return *block;
}

unsigned char* PoisonedMemory() {
  void* memory = std::aligned_alloc(1024, kSharedBytes);
  std::memset(memory, 0xff, kSharedBytes);
  return static_cast<unsigned char*>(memory);
}
unsigned char* DynamicMemory() {
  static unsigned char* const memory = PoisonedMemory();
  return memory;
}

// The variables of all kernels, one after another.
struct Variables {
  unsigned char* const memory = PoisonedMemory();
  size_t used = 0;
};
Variables& SharedVariables() {
  static auto* variables = new Variables;
  return *variables;
}

void Poison(size_t shared_bytes) {
  std::memset(DynamicMemory(), 0xff, shared_bytes);
  std::memset(SharedVariables().memory, 0xff, SharedVariables().used);
}

}  // namespace

void RunGrid(const GridShape& shape, const std::function<void()>& thread) {
  blockDim = shape.threads;
  gridDim = shape.blocks;
  const int64_t blocks = int64_t{shape.blocks.x} * shape.blocks.y * shape.blocks.z;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto n = static_cast<unsigned>(ChosenOrder() == Order::kReverse ? blocks - 1 - i : i);
    blockIdx = {n % shape.blocks.x, n / shape.blocks.x % shape.blocks.y,
                n / (shape.blocks.x * shape.blocks.y)};
    Poison(shape.shared_bytes);
    TheBlock().Run(shape.threads, thread);
  }
}

void* DynamicShared() { return DynamicMemory(); }

void* ReserveShared(size_t bytes, size_t alignment) {
  Variables& v = SharedVariables();
  const size_t begin = (v.used + alignment - 1) / alignment * alignment;
  if (begin + bytes > kSharedBytes) KernelFault("no room for more shared variables");
  v.used = begin + bytes;
  return v.memory + begin;
}

void WaitForBlock() { TheBlock().Wait(&TheBlock().barrier()); }

int OrOverBlock(int value) {
  Barrier& barrier = TheBlock().barrier();
  int& ored = barrier.ored[barrier.generation % 2];
  if (barrier.arrived == 0) ored = 0;
  ored |= value;
  TheBlock().Wait(&barrier);
  return ored;  // the next one with this parity begins after all have read this
}

LaneSlot* ExchangeInWarp(const void* in, size_t bytes, void (*combine)(LaneSlot*), int* lane) {
  Block& block = TheBlock();
  Warp& warp = block.warp();
  *lane = block.current() % kWarpLanes;
  LaneSlot* slots = warp.slots[warp.barrier.generation % 2];
  if (warp.barrier.arrived == 0) {
    warp.combine = combine;
  } else if (warp.combine != combine) {
    KernelFault("lanes of a warp call different collectives");
  }
  std::memcpy(slots[*lane].in, in, bytes);
  if (warp.barrier.arrived + 1 == warp.barrier.alive && combine != nullptr) combine(slots);
  block.Wait(&warp.barrier);
  return slots;
}

void BeginCopy(void* to, const void* from) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!aligned(to) || !aligned(from)) KernelFault("an asynchronous copy is not aligned");
  auto& groups = TheBlock().thread().copies;
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({to, from});
}

void CommitCopyGroup() {
  auto& groups = TheBlock().thread().copies;
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}

void WaitForCopyGroups(int pending) {
  auto& groups = TheBlock().thread().copies;
  while (static_cast<int>(groups.size()) > pending + 1) {
    for (const Copy& copy : groups.front()) {
      if (copy.from == nullptr) {
        std::memset(copy.to, 0, 16);
      } else {
        std::memcpy(copy.to, copy.from, 16);
      }
    }
    groups.erase(groups.begin());
  }
}

void KernelFault(const char* what) {
  std::fprintf(stderr,
               "emulated kernel: %s (block %u,%u,%u of %u,%u,%u; thread %u,%u,%u of %u,%u,%u)\n",
               what, blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z,
               threadIdx.x, threadIdx.y, threadIdx.z, blockDim.x, blockDim.y, blockDim.z);
  std::abort();
}

}  // namespace tessera::cuda::emulation
