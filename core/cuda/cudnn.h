// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface, loaded when it is first asked for. What uses it does without where the
// library is absent:
//
//   if (!Cudnn::Find().ok()) return UseOwnKernel();
//   CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
//   engine.Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, int64_t{0});
//   TESSERA_RETURN_IF_ERROR(engine.Finalize());       // the first failure of all calls
//
// cuDNN refuses graphs and engines as a matter of course, so that everything returns a status.
#ifndef TESSERA_CORE_CUDA_CUDNN_H_
#define TESSERA_CORE_CUDA_CUDNN_H_

#include <cudnn_graph.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) GetVersion;
  decltype(&cudnnGetErrorString) GetErrorString;
  decltype(&cudnnGetLastErrorString) GetLastErrorString;
  decltype(&cudnnCreate) Create;
  decltype(&cudnnSetStream) SetStream;
  decltype(&cudnnBackendCreateDescriptor) BackendCreateDescriptor;
  decltype(&cudnnBackendDestroyDescriptor) BackendDestroyDescriptor;
  decltype(&cudnnBackendFinalize) BackendFinalize;
  decltype(&cudnnBackendSetAttribute) BackendSetAttribute;
  decltype(&cudnnBackendGetAttribute) BackendGetAttribute;
  decltype(&cudnnBackendExecute) BackendExecute;

  // The library, or why there is none: not found, or older than its headers here, whose
  // descriptions of devices and graphs it would not know.
  static const StatusOr<Cudnn>& Find();
};

// From the library on this machine (cudnn_library.cc), or computed on the CPU
// (emulation/cudnn_emulated.cc). Cudnn::Find() calls it once.
StatusOr<Cudnn> LoadCudnn();

// "9.19.0" of what cudnnGetVersion says.
std::string CudnnVersionText(size_t version);
// "cuDNN 9.19.0", or why there is none.
std::string DescribeCudnn();

// OK, or one line: `what`, what cuDNN calls the failure, and its own account of it.
Status CudnnStatus(cudnnStatus_t status, std::string_view what);

// A descriptor of the backend that owns itself. Calls after a failure do nothing; the status of the
// first failure comes from Finalize. Needs the library.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  template <typename V>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
    SetArray(name, type, 1, &value);
  }
  void SetArray(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void* values);
  void SetDescriptor(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  Status Finalize();

  // Of a finalized descriptor.
  StatusOr<int64_t> Int64(cudnnBackendAttributeName_t name) const;
  // At most `most` values of an enumeration.
  template <typename E>
  StatusOr<std::vector<E>> Enums(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                 int64_t most) const {
    std::vector<E> values(static_cast<size_t>(most));
    int64_t count = 0;
    TESSERA_RETURN_IF_ERROR(Get(name, type, most, &count, values.data()));
    values.resize(static_cast<size_t>(count < most ? count : most));
    return values;
  }
  // Fills `values`, which are descriptors of the right type, and drops those that were not given.
  Status GetDescriptors(cudnnBackendAttributeName_t name,
                        std::vector<CudnnDescriptor>* values) const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  Status Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
             int64_t* count, void* values) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  Status status_;
};

// The properties of the active GPU, or those that `json` gives, which is cuDNN's own form of them:
// with these, graphs are compiled for a GPU that is not there.
StatusOr<CudnnDescriptor> CudnnPropertiesOfActiveDevice();
StatusOr<CudnnDescriptor> CudnnPropertiesFromJson(std::string_view json);

// Runs an execution plan on the active GPU and the current stream. One handle per GPU, used by one
// thread at a time.
Status CudnnExecute(const CudnnDescriptor& plan, const CudnnDescriptor& variant_pack);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_CUDNN_H_
