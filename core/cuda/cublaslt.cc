// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cublaslt.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "core/cuda/runtime.h"

namespace tessera::cuda {

const CublasLt& CublasLt::Get() {
  static const StatusOr<CublasLt> loaded = LoadCublasLt();
  TESSERA_CHECK(loaded.ok(), "matmul", Message(loaded.status()));
  return *loaded;
}

cublasLtHandle_t CublasLt::HandleOfActiveDevice() {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cublasLtHandle_t>;
  std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& handle = (*handles)[ActiveDevice()];
  if (handle == nullptr) CheckCublas(Get().Create(&handle), "matmul");
  return handle;
}

void CheckCublas(cublasStatus_t status, std::string_view operation) {
  TESSERA_CHECK(status == CUBLAS_STATUS_SUCCESS, operation,
                "cuBLASLt says: ", CublasLt::Get().GetStatusString(status));
}

}  // namespace tessera::cuda
