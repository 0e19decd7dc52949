// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded when the first matrix product asks for it.
//
//   const CublasLt& lt = CublasLt::Get();           // throws Error where it cannot be loaded
//   CheckCublas(lt.Matmul(handle, ...), "matmul");
#ifndef TESSERA_CORE_CUDA_CUBLASLT_H_
#define TESSERA_CORE_CUDA_CUBLASLT_H_

#include <cublasLt.h>

#include <string_view>

#include "base/status.h"

namespace tessera::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;

  static const CublasLt& Get();
  // One handle per GPU, shared by all threads.
  static cublasLtHandle_t HandleOfActiveDevice();
};

// From the library on this machine (cublaslt_library.cc), or computed on the CPU
// (emulation/cublaslt_emulated.cc). CublasLt::Get() calls it once.
StatusOr<CublasLt> LoadCublasLt();

// Throws Error(operation, ...) unless `status` is success.
void CheckCublas(cublasStatus_t status, std::string_view operation);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_CUBLASLT_H_
