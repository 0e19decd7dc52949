// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cublaslt.h"
#include "core/cuda/dynamic_library.h"

namespace tessera::cuda {

StatusOr<CublasLt> LoadCublasLt() {
  static_assert(CUBLAS_VER_MAJOR == 13);
  TESSERA_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open("libcublasLt.so.13"));
  CublasLt lt{};
  FunctionBinder bind(library);
  bind("cublasLtCreate", &lt.Create);
  bind("cublasLtGetVersion", &lt.GetVersion);
  bind("cublasLtGetStatusString", &lt.GetStatusString);
  bind("cublasLtMatmul", &lt.Matmul);
  bind("cublasLtMatmulDescCreate", &lt.MatmulDescCreate);
  bind("cublasLtMatmulDescDestroy", &lt.MatmulDescDestroy);
  bind("cublasLtMatmulDescSetAttribute", &lt.MatmulDescSetAttribute);
  bind("cublasLtMatrixLayoutCreate", &lt.MatrixLayoutCreate);
  bind("cublasLtMatrixLayoutDestroy", &lt.MatrixLayoutDestroy);
  bind("cublasLtMatrixLayoutSetAttribute", &lt.MatrixLayoutSetAttribute);
  bind("cublasLtMatmulPreferenceCreate", &lt.MatmulPreferenceCreate);
  bind("cublasLtMatmulPreferenceDestroy", &lt.MatmulPreferenceDestroy);
  bind("cublasLtMatmulPreferenceSetAttribute", &lt.MatmulPreferenceSetAttribute);
  bind("cublasLtMatmulAlgoGetHeuristic", &lt.MatmulAlgoGetHeuristic);
  if (!bind.status().ok()) return bind.status();
  return lt;
}

}  // namespace tessera::cuda
