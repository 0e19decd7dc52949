#include "core/cuda/cublaslt.h"

#include <map>
#include <mutex>

#include "core/cuda/dynamic_library.h"
#include "core/cuda/runtime.h"
#include "core/error.h"

namespace tessera::cuda {
namespace {

absl::StatusOr<CublasLt> Load() {
  static_assert(CUBLAS_VER_MAJOR == 13);
  TESSERA_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open("libcublasLt.so.13"));
  CublasLt lt{};
  absl::Status status;
  const auto bind = [&](const char* name, auto* function) {
    const absl::StatusOr<void*> symbol = library.Symbol(name);
    if (!symbol.ok()) {
      status = symbol.status();
      return;
    }
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(*symbol);
  };
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
  if (!status.ok()) return status;
  return lt;
}

}  // namespace

const CublasLt& CublasLt::Get() {
  static const absl::StatusOr<CublasLt> loaded = Load();
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
