// SPDX-License-Identifier: Apache-2.0
// Lets requests for memory fail, in programs that link this: it replaces operator new and delete.
//
//   FailingMemory::Arm({.first = 17});            // the 17th request from now on throws
//   ... what is tested ...
//   const int64_t requests = FailingMemory::Disarm();
//
// Requests of all threads count, those that would return nullptr instead of throwing, too.
#ifndef TESSERA_TESTS_INFERENCE_FAILING_MEMORY_H_
#define TESSERA_TESTS_INFERENCE_FAILING_MEMORY_H_

#include <cstdint>

namespace tessera {

class FailingMemory {
 public:
  struct Failures {
    int64_t first = 0;       // counted from 1; 0: none fails, they are counted only
    bool all_after = false;  // and all that follow: memory is used up
  };
  static void Arm(const Failures& failures);
  // How many requests came since Arm.
  static int64_t Disarm();
  // Counted from the start of the program, before main as well.
  static int64_t RequestsSoFar();
  // How many blocks are in use.
  static int64_t Blocks();
};

}  // namespace tessera

#endif  // TESSERA_TESTS_INFERENCE_FAILING_MEMORY_H_
