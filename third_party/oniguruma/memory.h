// SPDX-License-Identifier: Apache-2.0
// Oniguruma's memory comes from operator new, so that a host's allocator serves it (tsr_configure).
// Where there is none, std::bad_alloc passes through its functions, which do not look for that
// everywhere; what they had obtained by then is given back by a scope around the call.
//
//   OnigurumaMemoryScope scope;
//   onig_new(&code, ...);   // may throw std::bad_alloc
//   scope.Keep();           // the code is to outlive the scope
#ifndef TESSERA_THIRD_PARTY_ONIGURUMA_MEMORY_H_
#define TESSERA_THIRD_PARTY_ONIGURUMA_MEMORY_H_

namespace tessera {

// What stands before each piece of memory.
struct OnigurumaBlock;

// Of the thread that makes it. What is obtained is the innermost scope's.
class OnigurumaMemoryScope {
 public:
  OnigurumaMemoryScope();
  ~OnigurumaMemoryScope();
  OnigurumaMemoryScope(const OnigurumaMemoryScope&) = delete;
  OnigurumaMemoryScope& operator=(const OnigurumaMemoryScope&) = delete;

  // What was obtained so far is no longer the scope's to give back.
  void Keep();

 private:
  OnigurumaBlock* first_ = nullptr;
  OnigurumaBlock** const outer_;
};

}  // namespace tessera

#endif  // TESSERA_THIRD_PARTY_ONIGURUMA_MEMORY_H_
