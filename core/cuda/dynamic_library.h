// SPDX-License-Identifier: Apache-2.0
// Finding NVIDIA's libraries when they are first needed, so that a program starts without them.
//
//   DynamicLibrary library = DynamicLibrary::Open("libcublasLt.so.13");   // StatusOr
//   auto create = library.Symbol("cublasLtCreate");
//
// Looked for, in this order: the folders of TESSERA_CUDA_LIBRARIES (separated by ':'); the
// program's own folder and `lib` in and beside it; where the system's loader looks; CUDA_HOME (or
// /usr/local/cuda) /lib64; the packages `nvidia/*/lib` of the Python environment that VIRTUAL_ENV
// or the `python3` of PATH names.
#ifndef TESSERA_CORE_CUDA_DYNAMIC_LIBRARY_H_
#define TESSERA_CORE_CUDA_DYNAMIC_LIBRARY_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::cuda {

// Where to look; an empty name stands for the system's loader.
struct LibrarySearch {
  std::string program_folder;
  // The value of an environment variable, empty where it is not set.
  std::function<std::string(const char*)> environment;

  static LibrarySearch OfThisProcess();
  // Folders that exist, in order.
  std::vector<std::string> Folders() const;
};

class DynamicLibrary {
 public:
  // NotFound names the library and says how to make it found; one that is there and does not load
  // gives the loader's reason.
  static StatusOr<DynamicLibrary> Open(const std::string& name, const LibrarySearch& search);
  static StatusOr<DynamicLibrary> Open(const std::string& name) {
    return Open(name, LibrarySearch::OfThisProcess());
  }

  // NotFound where the library has no such function.
  StatusOr<void*> Symbol(const char* function) const;
  const std::string& path() const { return path_; }

 private:
  // Never closed: what it registered with the driver stays.
  void* handle_ = nullptr;
  std::string path_;
};

// Fills a table with the functions of a library:
//
//   FunctionBinder bind(library);
//   bind("cudnnCreate", &table.Create);
//   if (!bind.status().ok()) return bind.status();     // of the last function that is not there
class FunctionBinder {
 public:
  explicit FunctionBinder(const DynamicLibrary& library) : library_(library) {}
  template <typename F>
  void operator()(const char* name, F* function) {
    const StatusOr<void*> symbol = library_.Symbol(name);
    if (symbol.ok()) {
      *function = reinterpret_cast<F>(*symbol);
    } else {
      status_ = symbol.status();
    }
  }
  const Status& status() const { return status_; }

 private:
  const DynamicLibrary& library_;
  Status status_;
};

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_DYNAMIC_LIBRARY_H_
