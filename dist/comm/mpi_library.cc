// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_library.h"

#include <dlfcn.h>

namespace tessera::dist {
namespace internal {

const MpiLibrary* mpi_library = nullptr;

}  // namespace internal

namespace {

// Of Open MPI 3, 4 and 5. Other implementations, whose handles are something else, have other
// names.
constexpr char kLibrary[] = "libmpi.so.40";

Status Load() {
  // Open MPI's plugins take its symbols from what is loaded for all.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return NotFound("Open MPI's library cannot be loaded (", dlerror(),
                    "); Debian's package libopenmpi3 has it");
  }
  static const MpiLibrary mpi{MpiSymbols(library)};
  if (mpi.symbols.missing() != nullptr) {
    return NotFound(kLibrary, " has no ", mpi.symbols.missing(), ": it is not Open MPI's");
  }
  internal::mpi_library = &mpi;
  return OkStatus();
}

}  // namespace

MpiSymbols::Address MpiSymbols::operator()(const char* name) {
  void* const address = dlsym(library_, name);
  if (address == nullptr && missing_ == nullptr) missing_ = name;
  return {address};
}

Status LoadMpi() {
  static const Status status = Load();
  return status;
}

}  // namespace tessera::dist
