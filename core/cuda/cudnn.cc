// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cudnn.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"

namespace tessera::cuda {
namespace {

StatusOr<CudnnDescriptor> Finalized(CudnnDescriptor descriptor) {
  TESSERA_RETURN_IF_ERROR(descriptor.Finalize());
  return descriptor;
}

}  // namespace

const StatusOr<Cudnn>& Cudnn::Find() {
  static const StatusOr<Cudnn> found = LoadCudnn();
  return found;
}

std::string CudnnVersionText(size_t version) {
  return Concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string DescribeCudnn() {
  const StatusOr<Cudnn>& cudnn = Cudnn::Find();
  return cudnn.ok() ? Concat("cuDNN ", CudnnVersionText(cudnn->GetVersion()))
                    : Message(cudnn.status());
}

Status CudnnStatus(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return OkStatus();
  char account[512] = "";
  Cudnn::Find()->GetLastErrorString(account, sizeof(account));
  for (char& c : account) {
    if (c == '\n') c = ' ';
  }
  return Internal(what, ": ", Cudnn::Find()->GetErrorString(status), account[0] == '\0' ? "" : ": ",
                  account);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  status_ =
      CudnnStatus(Cudnn::Find()->BackendCreateDescriptor(type, &descriptor_), "cuDNN descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) Cudnn::Find()->BackendDestroyDescriptor(descriptor_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)), status_(std::move(other.status_)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(status_, other.status_);
  return *this;
}

void CudnnDescriptor::SetArray(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                               int64_t count, const void* values) {
  if (!status_.ok()) return;
  status_ = CudnnStatus(Cudnn::Find()->BackendSetAttribute(descriptor_, name, type, count, values),
                        Concat("cuDNN attribute ", static_cast<int>(name)));
}

Status CudnnDescriptor::Finalize() {
  if (status_.ok()) {
    status_ = CudnnStatus(Cudnn::Find()->BackendFinalize(descriptor_), "cuDNN descriptor");
  }
  return status_;
}

Status CudnnDescriptor::Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t most, int64_t* count, void* values) const {
  return CudnnStatus(
      Cudnn::Find()->BackendGetAttribute(descriptor_, name, type, most, count, values),
      Concat("cuDNN attribute ", static_cast<int>(name)));
}

StatusOr<int64_t> CudnnDescriptor::Int64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  int64_t count = 0;
  TESSERA_RETURN_IF_ERROR(Get(name, CUDNN_TYPE_INT64, 1, &count, &value));
  return value;
}

Status CudnnDescriptor::GetDescriptors(cudnnBackendAttributeName_t name,
                                       std::vector<CudnnDescriptor>* values) const {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& value : *values) raw.push_back(value.get());
  int64_t count = 0;
  TESSERA_RETURN_IF_ERROR(Get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()),
                              &count, raw.data()));
  while (static_cast<int64_t>(values->size()) > count) values->pop_back();
  return OkStatus();
}

StatusOr<CudnnDescriptor> CudnnPropertiesOfActiveDevice() {
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.Set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32,
                 static_cast<int32_t>(ActiveDevice()));
  return Finalized(std::move(properties));
}

StatusOr<CudnnDescriptor> CudnnPropertiesFromJson(std::string_view json) {
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.SetArray(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                      static_cast<int64_t>(json.size()), json.data());
  return Finalized(std::move(properties));
}

Status CudnnExecute(const CudnnDescriptor& plan, const CudnnDescriptor& variant_pack) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cudnnHandle_t>;
  const Cudnn& cudnn = *Cudnn::Find();
  std::lock_guard<std::mutex> lock(mutex);
  cudnnHandle_t& handle = (*handles)[ActiveDevice()];
  if (handle == nullptr) {
    TESSERA_RETURN_IF_ERROR(CudnnStatus(cudnn.Create(&handle), "cuDNN handle"));
  }
  TESSERA_RETURN_IF_ERROR(CudnnStatus(cudnn.SetStream(handle, CurrentStream()), "cuDNN stream"));
  return CudnnStatus(cudnn.BackendExecute(handle, plan.get(), variant_pack.get()), "cuDNN plan");
}

}  // namespace tessera::cuda
