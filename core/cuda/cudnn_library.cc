// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cudnn.h"
#include "core/cuda/dynamic_library.h"

namespace tessera::cuda {

StatusOr<Cudnn> LoadCudnn() {
  static_assert(CUDNN_MAJOR == 9);
  // Engines that compile at run time ask the loader for it by this name.
  const StatusOr<DynamicLibrary> compiler = DynamicLibrary::Open("libnvrtc.so.13");
  if (!compiler.ok()) return compiler.status();
  TESSERA_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open("libcudnn.so.9"));
  Cudnn cudnn{};
  FunctionBinder bind(library);
  bind("cudnnGetVersion", &cudnn.GetVersion);
  bind("cudnnGetErrorString", &cudnn.GetErrorString);
  bind("cudnnGetLastErrorString", &cudnn.GetLastErrorString);
  bind("cudnnCreate", &cudnn.Create);
  bind("cudnnSetStream", &cudnn.SetStream);
  bind("cudnnBackendCreateDescriptor", &cudnn.BackendCreateDescriptor);
  bind("cudnnBackendDestroyDescriptor", &cudnn.BackendDestroyDescriptor);
  bind("cudnnBackendFinalize", &cudnn.BackendFinalize);
  bind("cudnnBackendSetAttribute", &cudnn.BackendSetAttribute);
  bind("cudnnBackendGetAttribute", &cudnn.BackendGetAttribute);
  bind("cudnnBackendExecute", &cudnn.BackendExecute);
  if (!bind.status().ok()) return bind.status();
  // Descriptions of devices came with 9.11, masks of true infinities with 9.10.
  constexpr size_t kOldest = 91100;
  if (cudnn.GetVersion() < kOldest) {
    return NotFound(library.path(), " is cuDNN ", CudnnVersionText(cudnn.GetVersion()),
                    ", needed is ", CudnnVersionText(kOldest), " or newer");
  }
  return cudnn;
}

}  // namespace tessera::cuda
