// SPDX-License-Identifier: Apache-2.0
// The switches of mutants in an instrumented tree, where tools/mutate copies this file to base/.
//
//   TESSERA_MUTANT=123               mutant 123 is active in this process and in those it starts
//   TESSERA_MUTANT_COVERAGE=FILE     byte 123 of FILE becomes 1 once point 123 is executed
//
// With neither, nothing changes. A switch that is off costs a byte's load and a branch.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" {

// tools/mutation/rewrite.h has the same number.
bool tessera_mutation_points[1 << 18];
bool tessera_mutation_taken(int point);

}  // extern "C"

namespace {

unsigned char* covered = nullptr;

// Before initialisers of statics. The file is shared memory: a process that is killed has written.
__attribute__((constructor(101))) void Begin() {
  if (const char* mutant = std::getenv("TESSERA_MUTANT")) {
    const unsigned long point = std::strtoul(mutant, nullptr, 10);
    if (point < sizeof tessera_mutation_points) tessera_mutation_points[point] = true;
    return;
  }
  const char* path = std::getenv("TESSERA_MUTANT_COVERAGE");
  if (path == nullptr) return;
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (ftruncate(file, sizeof tessera_mutation_points) == 0) {
    void* bytes =
        mmap(nullptr, sizeof tessera_mutation_points, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes != MAP_FAILED) {
      covered = static_cast<unsigned char*>(bytes);
      std::memset(tessera_mutation_points, 1, sizeof tessera_mutation_points);
    }
  }
  close(file);
}

}  // namespace

bool tessera_mutation_taken(int point) {
  if (covered == nullptr) return true;
  covered[point] = 1;
  tessera_mutation_points[point] = false;
  return false;
}
