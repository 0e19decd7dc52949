// SPDX-License-Identifier: Apache-2.0
// NCCL's functions as this program calls them, each passed on to libnccl.so.2, which is loaded by
// the first call. A program that never makes a NCCL group needs no NCCL.
#include <nccl.h>

#include <string>

#include "core/cuda/dynamic_library.h"

namespace tessera::cuda {
namespace {

struct LoadedNccl {
  StatusOr<DynamicLibrary> library = DynamicLibrary::Open("libnccl.so.2");
  std::string problem = library.ok() ? "" : Message(library.status());
};

const LoadedNccl& Nccl() {
  static const LoadedNccl* loaded = new LoadedNccl;
  return *loaded;
}

// nullptr where it cannot be had.
template <typename F>
F Function(const char* name) {
  if (!Nccl().library.ok()) return nullptr;
  const StatusOr<void*> symbol = Nccl().library->Symbol(name);
  return symbol.ok() ? reinterpret_cast<F>(*symbol) : nullptr;
}

}  // namespace
}  // namespace tessera::cuda

#define TESSERA_NCCL_CALL_(name, ...)                                               \
  static const auto function = ::tessera::cuda::Function<decltype(&::name)>(#name); \
  return function != nullptr ? function(__VA_ARGS__) : ncclSystemError

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  if (!tessera::cuda::Nccl().library.ok()) return tessera::cuda::Nccl().problem.c_str();
  static const auto function =
      tessera::cuda::Function<decltype(&::ncclGetErrorString)>("ncclGetErrorString");
  return function != nullptr ? function(result) : "libnccl.so.2 has no ncclGetErrorString";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { TESSERA_NCCL_CALL_(ncclGetUniqueId, id); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  TESSERA_NCCL_CALL_(ncclCommInitRankConfig, comm, ranks, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result,
                           ncclConfig_t* config) {
  TESSERA_NCCL_CALL_(ncclCommSplit, comm, color, key, result, config);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { TESSERA_NCCL_CALL_(ncclCommFinalize, comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { TESSERA_NCCL_CALL_(ncclCommDestroy, comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { TESSERA_NCCL_CALL_(ncclCommAbort, comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  TESSERA_NCCL_CALL_(ncclCommGetAsyncError, comm, error);
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  TESSERA_NCCL_CALL_(ncclCommCount, comm, count);
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  TESSERA_NCCL_CALL_(ncclCommUserRank, comm, rank);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclAllReduce, in, out, n, type, op, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclReduceScatter, in, out, n, type, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclAllGather, in, out, n, type, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclBroadcast, in, out, n, type, root, comm, stream);
}
ncclResult_t ncclSend(const void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclSend, data, n, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  TESSERA_NCCL_CALL_(ncclRecv, data, n, type, peer, comm, stream);
}
ncclResult_t ncclGroupStart() { TESSERA_NCCL_CALL_(ncclGroupStart); }
ncclResult_t ncclGroupEnd() { TESSERA_NCCL_CALL_(ncclGroupEnd); }

}  // extern "C"
