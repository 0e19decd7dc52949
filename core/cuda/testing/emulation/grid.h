// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a grid on the CPU: blocks one after another, the threads of a block as
// coroutines that change places where they wait for one another.
//
//   RunGrid({blocks, threads, shared_bytes}, [&] { kernel(a, b); });
//
// What is defined here by CUDA's documentation: barriers count the threads of a block (the lanes of
// a warp) that have not returned; a collective of a warp reads what all lanes had when the last one
// came. Shared memory is filled with 0xff bytes (NaN) before each block. A block whose threads wait
// for what cannot happen ends the program with a message.
//
// TESSERA_EMULATION_ORDER says in which order threads go on: "forward" (the default), "reverse",
// or "mixed" (another order each time, the same in every run).
//
// One grid runs at a time in a process; whoever calls RunGrid sees to that.
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_GRID_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_GRID_H_

#include <vector_types.h>

#include <cstddef>
#include <functional>

namespace tessera::cuda::emulation {

struct GridShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
};

void RunGrid(const GridShape& shape, const std::function<void()>& thread);

// ---- In a running thread ----------------------------------------------------------------------

void* DynamicShared();
// Memory of a variable of every block, for as long as the process runs.
void* ReserveShared(size_t bytes, size_t alignment);
void WaitForBlock();
// The bitwise or over the block; a barrier too.
int OrOverBlock(int value);

constexpr int kWarpLanes = 32;
// What a lane brings to a collective of its warp, and what it takes from it.
struct alignas(16) LaneSlot {
  unsigned char in[32];
  unsigned char out[32];
};
// Waits until every lane of the warp has called this with its `in`, `bytes` long, then has
// `combine` called once over the 32 slots (unless it is nullptr). They stay as they are until this
// lane's next collective; `lane` becomes its number.
LaneSlot* ExchangeInWarp(const void* in, size_t bytes, void (*combine)(LaneSlot*), int* lane);

// Asynchronous copies of 16 bytes by this thread, done when they are waited for and no sooner.
void BeginCopy(void* to, const void* from);  // `from` nullptr: zeros
void CommitCopyGroup();
void WaitForCopyGroups(int pending);

// Ends the program: `what` is said of the running kernel's thread.
[[noreturn]] void KernelFault(const char* what);

}  // namespace tessera::cuda::emulation

// Of the running thread, as in CUDA.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_GRID_H_
