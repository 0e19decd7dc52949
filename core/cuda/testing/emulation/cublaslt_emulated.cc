// SPDX-License-Identifier: Apache-2.0
// cuBLASLt on the CPU, by its documentation: column-major matrices, strided batches, transposed
// operands, D = epilogue(alpha op(A) op(B) + beta C + bias) with sums in float32 (float64 for
// float64), and of the epilogues those that LoadCublasLt's users may ask for. What the
// documentation does not allow, and what is not emulated, is refused as the library refuses it.
//
// Two "algorithms" are offered, for large products one: to choose, the caller runs each many times.
// They compute the same; one wants a workspace, and spoils it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cuda/cublaslt.h"
#include "core/cuda/testing/emulation/work.h"
#include "core/dtype.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kAlgorithm = 0x7e55e7a0;  // marks algorithms of this file
constexpr size_t kWorkspace = 4096;
constexpr int64_t kLarge = 1 << 16;  // multiplications

struct Layout {
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int32_t bias_type = -1;
  int64_t bias_batch_stride = 0;
  void* aux = nullptr;
  int64_t aux_leading = 0;
  int64_t aux_batch_stride = 0;
  int32_t aux_type = -1;
};

struct Preference {
  uint64_t max_workspace = 0;
};

// What an epilogue does, whatever else it does.
bool AddsBias(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
         e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool AppliesGelu(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
         e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool StoresAux(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool ReadsAux(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}
bool SumsToBias(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_DGELU_BGRAD || e == CUBLASLT_EPILOGUE_BGRADA ||
         e == CUBLASLT_EPILOGUE_BGRADB;
}
bool IsKnown(uint32_t e) {
  return e == CUBLASLT_EPILOGUE_DEFAULT || AddsBias(e) || AppliesGelu(e) || ReadsAux(e) ||
         SumsToBias(e);
}

double Read(cudaDataType_t type, const void* data, int64_t i) {
  switch (type) {
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const Float16*>(data)[i]);
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}
void Write(cudaDataType_t type, void* data, int64_t i, double value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
      return;
    case CUDA_R_16F:
      static_cast<Float16*>(data)[i] = Float16(static_cast<float>(value));
      return;
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = value;
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

// The approximation by tanh, and its derivative.
constexpr double kSqrt2OverPi = 0.79788456080286535588;
double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}
double GeluDerivative(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * 0.044715 * x * x);
}

struct Product {
  Description desc;
  double alpha;
  double beta;
  const void* a;
  const void* b;
  const void* c;
  void* d;
  Layout la, lb, lc, ld;

  int64_t m() const { return ld.rows; }
  int64_t n() const { return ld.columns; }
  int64_t k() const { return desc.transpose_a != CUBLAS_OP_N ? la.rows : la.columns; }
};

// op(X)[i, j] of one batch entry.
double At(const Layout& layout, const void* data, int64_t batch, bool transposed, int64_t i,
          int64_t j) {
  if (transposed) std::swap(i, j);
  return Read(layout.type, data, batch * layout.batch_stride + i + j * layout.leading);
}

// y += factor x, in blocks of a known size: these become vector instructions.
template <typename Sum>
void AddScaled(const Sum* x, Sum factor, int64_t n, Sum* __restrict y) {
  constexpr int64_t kBlock = 16;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int64_t u = 0; u < kBlock; ++u) y[i + u] += x[i + u] * factor;
  }
  for (; i < n; ++i) y[i] += x[i] * factor;
}

// Sum is what sums are kept in.
template <typename Sum>
void Run(const Product& p) {
  const Description& desc = p.desc;
  const uint32_t epilogue = desc.epilogue;
  const int64_t m = p.m();
  const int64_t n = p.n();
  const int64_t k = p.k();
  const bool ta = desc.transpose_a != CUBLAS_OP_N;
  const bool tb = desc.transpose_b != CUBLAS_OP_N;
  std::vector<Sum> a(static_cast<size_t>(m * k));  // column-major
  std::vector<Sum> sums(static_cast<size_t>(m));
  for (int64_t batch = 0; batch < p.ld.batch; ++batch) {
    for (int64_t x = 0; x < k; ++x) {
      for (int64_t i = 0; i < m; ++i) {
        a[static_cast<size_t>(x * m + i)] = static_cast<Sum>(At(p.la, p.a, batch, ta, i, x));
      }
    }
    const int64_t bias_at = batch * desc.bias_batch_stride;
    const int64_t aux_at = batch * desc.aux_batch_stride;
    std::vector<Sum> row_sums(static_cast<size_t>(m));
    for (int64_t j = 0; j < n; ++j) {
      std::fill(sums.begin(), sums.end(), Sum(0));
      Sum column_sum = 0;
      for (int64_t x = 0; x < k; ++x) {
        const Sum factor = static_cast<Sum>(At(p.lb, p.b, batch, tb, x, j));
        column_sum += factor;
        AddScaled(a.data() + x * m, factor, m, sums.data());
      }
      if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        Write(p.ld.type, desc.bias, bias_at + j, column_sum);
      }
      for (int64_t i = 0; i < m; ++i) {
        double value = p.alpha * sums[static_cast<size_t>(i)];
        if (p.beta != 0) value += p.beta * At(p.lc, p.c, batch, false, i, j);
        if (AddsBias(epilogue)) value += Read(p.ld.type, desc.bias, bias_at + i);
        const int64_t aux = aux_at + i + j * desc.aux_leading;
        if (StoresAux(epilogue)) Write(p.ld.type, desc.aux, aux, value);
        if (AppliesGelu(epilogue)) value = Gelu(value);
        if (ReadsAux(epilogue)) value *= GeluDerivative(Read(p.ld.type, desc.aux, aux));
        row_sums[static_cast<size_t>(i)] += static_cast<Sum>(value);
        Write(p.ld.type, p.d, batch * p.ld.batch_stride + i + j * p.ld.leading, value);
      }
    }
    for (int64_t i = 0; i < m && epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD; ++i) {
      Write(p.ld.type, desc.bias, bias_at + i, row_sums[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < m && epilogue == CUBLASLT_EPILOGUE_BGRADA; ++i) {
      Sum sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a[static_cast<size_t>(x * m + i)];
      Write(p.ld.type, desc.bias, bias_at + i, sum);
    }
  }
}

// ---- What the library refuses -----------------------------------------------------------------

bool TypesAreSupported(const Description& desc, const Layout& a, const Layout& b, const Layout& c,
                       const Layout& d) {
  if (a.type != b.type || c.type != d.type) return false;
  if (desc.compute == CUBLAS_COMPUTE_64F) {
    return desc.scale == CUDA_R_64F && a.type == CUDA_R_64F && d.type == CUDA_R_64F;
  }
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) return false;
  if (a.type == CUDA_R_32F) return d.type == CUDA_R_32F;
  return (a.type == CUDA_R_16BF || a.type == CUDA_R_16F) &&
         (d.type == a.type || d.type == CUDA_R_32F);
}

cublasStatus_t CheckEpilogue(const Description& desc, const Layout& d) {
  const uint32_t e = desc.epilogue;
  if (!IsKnown(e)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (d.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (AddsBias(e) || SumsToBias(e)) {
    const bool one_for_all = SumsToBias(e) && d.batch > 1 && desc.bias_batch_stride == 0;
    if (desc.bias == nullptr || one_for_all) return CUBLAS_STATUS_INVALID_VALUE;
    if (desc.bias_type != -1 && desc.bias_type != d.type) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (StoresAux(e) || ReadsAux(e)) {
    if (desc.aux == nullptr || desc.aux_leading < d.rows || desc.aux_leading % 8 != 0 ||
        desc.aux_batch_stride % 8 != 0) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (desc.aux_type != -1 && desc.aux_type != d.type) return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<uintptr_t>(desc.aux) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Check(const Description& desc, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->leading < layout->rows || layout->batch != d.batch) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const bool ta = desc.transpose_a != CUBLAS_OP_N;
  const bool tb = desc.transpose_b != CUBLAS_OP_N;
  if ((ta ? a.columns : a.rows) != d.rows || (tb ? b.rows : b.columns) != d.columns ||
      (ta ? a.rows : a.columns) != (tb ? b.columns : b.rows) || c.rows != d.rows ||
      c.columns != d.columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // Batches that D's strides let overlap have no defined result.
  if (d.batch > 1 && d.batch_stride < d.leading * (d.columns - 1) + d.rows) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!TypesAreSupported(desc, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CheckEpilogue(desc, d);
}

// ---- The library's functions ------------------------------------------------------------------

template <typename V>
cublasStatus_t Set(V* to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(V)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

const Layout& Of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
const Description& Of(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Description*>(desc); }

cublasStatus_t SetDescription(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                              const void* value, size_t bytes) {
  Description& d = *reinterpret_cast<Description*>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(&d.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(&d.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(&d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(&d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(&d.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return Set(&d.bias_batch_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Set(&d.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Set(&d.aux_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return Set(&d.aux_batch_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return Set(&d.aux_type, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t SetLayout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                         const void* value, size_t bytes) {
  Layout& l = *reinterpret_cast<Layout*>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(&l.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(&l.batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t SetPreference(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return Set(&reinterpret_cast<Preference*>(preference)->max_workspace, value, bytes);
  }
  uint32_t ignored = 0;  // alignments and reductions decide nothing here
  return Set(&ignored, value, bytes);
}

cublasStatus_t GetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                            int requested, cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const cublasStatus_t status = Check(Of(desc), Of(a), Of(b), Of(c), Of(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const uint64_t limit = reinterpret_cast<const Preference*>(preference)->max_workspace;
  const bool ta = Of(desc).transpose_a != CUBLAS_OP_N;
  const int64_t work = Of(d).rows * Of(d).columns * (ta ? Of(a).rows : Of(a).columns);
  for (const size_t workspace : {kWorkspace, size_t{0}}) {
    if (*found == requested || (*found == 1 && work > kLarge)) break;
    if (workspace > limit) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.algo.data[0] = kAlgorithm;
    result.algo.data[1] = workspace;
    result.workspaceSize = workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                      cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb,
                      const void* beta, const void* c, cublasLtMatrixLayout_t lc, void* d,
                      cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t* algorithm,
                      void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const cublasStatus_t status = Check(Of(desc), Of(la), Of(lb), Of(lc), Of(ld));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  size_t spoiled = 0;
  if (algorithm != nullptr) {
    if (algorithm->data[0] != kAlgorithm) return CUBLAS_STATUS_INVALID_VALUE;
    spoiled = algorithm->data[1];
    if (spoiled > workspace_bytes || (spoiled > 0 && workspace == nullptr)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const cudaDataType_t scale = Of(desc).scale;
  const Product product{
      Of(desc), Read(scale, alpha, 0), Read(scale, beta, 0), a, b, c, d, Of(la), Of(lb), Of(lc),
      Of(ld)};
  const cudaError_t error = emulation::Enqueue(stream, [product, workspace, spoiled] {
    if (spoiled > 0) std::memset(workspace, 0xff, spoiled);
    if (product.ld.type == CUDA_R_64F) {
      Run<double>(product);
    } else {
      Run<float>(product);
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <typename Real, typename Opaque>
cublasStatus_t Destroy(Opaque object) {
  delete reinterpret_cast<Real*>(object);
  return CUBLAS_STATUS_SUCCESS;
}

const char* StatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

}  // namespace

StatusOr<CublasLt> LoadCublasLt() {
  CublasLt lt{};
  lt.Create = [](cublasLtHandle_t* handle) {
    static int the_handle;
    *handle = reinterpret_cast<cublasLtHandle_t>(&the_handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.GetVersion = [] { return size_t{CUBLAS_VERSION}; };
  lt.GetStatusString = StatusString;
  lt.Matmul = Matmul;
  lt.MatmulDescCreate = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                           cudaDataType_t scale) {
    auto* made = new Description;
    made->compute = compute;
    made->scale = scale;
    *desc = reinterpret_cast<cublasLtMatmulDesc_t>(made);
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulDescDestroy = Destroy<Description, cublasLtMatmulDesc_t>;
  lt.MatmulDescSetAttribute = SetDescription;
  lt.MatrixLayoutCreate = [](cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                             uint64_t columns, int64_t leading) {
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
        new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatrixLayoutDestroy = Destroy<Layout, cublasLtMatrixLayout_t>;
  lt.MatrixLayoutSetAttribute = SetLayout;
  lt.MatmulPreferenceCreate = [](cublasLtMatmulPreference_t* preference) {
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.MatmulPreferenceDestroy = Destroy<Preference, cublasLtMatmulPreference_t>;
  lt.MatmulPreferenceSetAttribute = SetPreference;
  lt.MatmulAlgoGetHeuristic = GetHeuristic;
  return lt;
}

}  // namespace tessera::cuda
