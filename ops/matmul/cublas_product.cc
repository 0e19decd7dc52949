// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cublas_product.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "core/cuda/contest.h"
#include "core/cuda/cublaslt.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "ops/kernel_choice.h"
#include "ops/matmul/algorithm_cache.h"
#include "ops/matmul/product_workspace.h"

namespace tessera::cuda {
namespace {

constexpr char kName[] = "matmul";
constexpr int kCandidates = 8;
// Measuring takes about a hundred products: of those that take so little time that what is measured
// is their launch, and of shapes that keep coming, as those of prompts do, the library's own choice
// is taken.
constexpr double kLeastMeasured = 1 << 30;  // multiplications
constexpr size_t kMostMeasured = 64;        // shapes
// What the epilogues require of the bias.
constexpr uint32_t kBiasAlignment = 16;
constexpr uint32_t kAuxAlignment = 16;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kFloat64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

// The bytes, up to 256, that p is aligned to.
uint32_t AlignmentOf(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

class Layout {
 public:
  Layout(DType dtype, const ColumnMajor& matrix, int64_t batch, int64_t batch_stride) {
    const CublasLt& lt = CublasLt::Get();
    CheckCublas(lt.MatrixLayoutCreate(&layout_, TypeOf(dtype), static_cast<uint64_t>(matrix.rows),
                                      static_cast<uint64_t>(matrix.columns), matrix.leading),
                kName);
    if (batch == 1) return;
    const auto count = static_cast<int32_t>(batch);
    Set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    Set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  ~Layout() { CublasLt::Get().MatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  template <typename V>
  void Set(cublasLtMatrixLayoutAttribute_t attribute, V value) {
    CheckCublas(CublasLt::Get().MatrixLayoutSetAttribute(layout_, attribute, &value, sizeof(value)),
                kName);
  }
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  explicit Description(const CublasProduct& p) {
    const bool wide = p.dtype == DType::kFloat64;
    CheckCublas(
        CublasLt::Get().MatmulDescCreate(&desc_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                         wide ? CUDA_R_64F : CUDA_R_32F),
        kName);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, p.x.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, p.y.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.bias != nullptr) {
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(p.c_dtype));
    }
    if (p.aux != nullptr) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    }
  }
  ~Description() { CublasLt::Get().MatmulDescDestroy(desc_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  template <typename V>
  void Set(cublasLtMatmulDescAttributes_t attribute, V value) {
    CheckCublas(CublasLt::Get().MatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)),
                kName);
  }
  cublasLtMatmulDesc_t desc_ = nullptr;
};

class Preference {
 public:
  // Every operand is aligned to so many bytes at least.
  explicit Preference(uint32_t alignment) {
    CheckCublas(CublasLt::Get().MatmulPreferenceCreate(&preference_), kName);
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLibraryWorkspace);
    // Never parts that are added in half precision.
    Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  }
  ~Preference() { CublasLt::Get().MatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <typename V>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, V value) {
    CheckCublas(
        CublasLt::Get().MatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
        kName);
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The choices of this process, and where they are kept between processes.
class Choices {
 public:
  static Choices& Get() {
    static auto* choices = new Choices;
    return *choices;
  }
  // As the environment says, else as the run has it now.
  bool measures() const { return measures_.value_or(!CurrentKernelChoice().alike); }
  bool IsWorthMeasuring(const CublasProduct& p) const {
    const double multiplications =
        static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    return multiplications >= kLeastMeasured && cache_.size() < kMostMeasured;
  }
  AlgorithmCache& cache() { return cache_; }
  void Save() {
    if (file_.empty()) return;
    const Status status = WriteFileAtomically(file_, cache_.Format(Header()));
    if (status.ok()) return;
    // A run is worth more than its choices.
    std::fprintf(stderr, "warning: %s: choices are no longer kept: %s\n", kName,
                 Message(status).c_str());
    file_.clear();
  }

 private:
  Choices() {
    const char* setting = std::getenv("TESSERA_MATMUL_TUNING");
    const std::string value = setting != nullptr ? setting : "";
    if (!value.empty()) measures_ = value != "off";
    if (value.empty() || value == "off" || value == "on") return;
    file_ = value;
    const StatusOr<std::string> text = ReadFile(file_);
    if (!text.ok()) return;  // the first run makes it
    const Status status = cache_.Parse(*text, Header());
    TESSERA_CHECK(status.ok(), kName, file_, ": ", Message(status));
  }
  static std::string Header() {
    return Concat("cuBLASLt ", CublasLt::Get().GetVersion(), ", ", Properties(ActiveDevice()).name);
  }

  std::optional<bool> measures_;  // what the environment says
  std::string file_;
  AlgorithmCache cache_;
};

// Algorithms of shapes that were asked for, nullopt where there is none, so that the library is
// asked once.
using Algorithm = std::optional<cublasLtMatmulAlgo_t>;
struct KnownAlgorithm {
  Algorithm algorithm;
  bool settled;  // false: to be measured when that is possible
};
class KnownAlgorithms {
 public:
  // Those that were measured are not those that every process chooses.
  static KnownAlgorithms& Get() {
    static auto* measured = new KnownAlgorithms;
    static auto* alike = new KnownAlgorithms;
    return Choices::Get().measures() ? *measured : *alike;
  }
  std::optional<KnownAlgorithm> Find(const ProductShape& shape) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(shape);
    return found == known_.end() ? std::nullopt : std::optional<KnownAlgorithm>(found->second);
  }
  void Add(const ProductShape& shape, const Algorithm& algorithm, bool settled = true) {
    std::lock_guard<std::mutex> lock(mutex_);
    known_[shape] = {algorithm, settled};
  }

 private:
  std::mutex mutex_;
  std::map<ProductShape, KnownAlgorithm> known_;
};

// What all operands are aligned to: an algorithm is known by it.
uint32_t AlignmentOfAll(const CublasProduct& p) {
  return std::min({AlignmentOf(p.a), AlignmentOf(p.b), AlignmentOf(p.c)});
}

// Whether the library declines a product, rather than fails.
bool Declines(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Everything that one call of cuBLASLt needs.
class Call {
 public:
  Call(const CublasProduct& p, void* workspace)
      : product_(p),
        workspace_(workspace),
        description_(p),
        x_(p.dtype, p.x, p.batch, p.b_batch),
        y_(p.dtype, p.y, p.batch, p.a_batch),
        d_(p.c_dtype, {p.n, p.m, p.c_row, false}, p.batch, p.m * p.c_row) {}

  // What the library offers, its own choice first.
  std::vector<cublasLtMatmulAlgo_t> Candidates() const {
    const Preference preference(AlignmentOfAll(product_));
    cublasLtMatmulHeuristicResult_t results[kCandidates];
    int found = 0;
    const cublasStatus_t status = CublasLt::Get().MatmulAlgoGetHeuristic(
        CublasLt::HandleOfActiveDevice(), description_.get(), x_.get(), y_.get(), d_.get(),
        d_.get(), preference.get(), kCandidates, results, &found);
    if (Declines(status)) return {};
    CheckCublas(status, kName);
    std::vector<cublasLtMatmulAlgo_t> usable;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) usable.push_back(results[i].algo);
    }
    return usable;
  }

  cublasStatus_t Run(const cublasLtMatmulAlgo_t& algorithm) const {
    const CublasProduct& p = product_;
    const float one = 1.0f;
    const float beta = p.accumulate ? 1.0f : 0.0f;
    const double wide_one = 1.0;
    const double wide_beta = beta;
    const bool wide = p.dtype == DType::kFloat64;
    return CublasLt::Get().Matmul(
        CublasLt::HandleOfActiveDevice(), description_.get(),
        wide ? static_cast<const void*>(&wide_one) : &one, p.b, x_.get(), p.a, y_.get(),
        wide ? static_cast<const void*>(&wide_beta) : &beta, p.c, d_.get(), p.c, d_.get(),
        &algorithm, workspace_, kLibraryWorkspace, CurrentStream());
  }

 private:
  const CublasProduct& product_;
  void* const workspace_;
  const Description description_;
  const Layout x_;
  const Layout y_;
  const Layout d_;
};

bool IsCapturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CheckCuda(cudaStreamIsCapturing(CurrentStream(), &status), kName);
  return status != cudaStreamCaptureStatusNone;
}

int Log2(uint32_t n) {
  int bits = 0;
  while ((n >>= 1) != 0) ++bits;
  return bits;
}

// Whether it adds to c is not part of it: the library is not told before the product runs.
ProductShape ShapeOf(const CublasProduct& p) {
  ProductShape shape;
  shape.m = p.m;
  shape.n = p.n;
  shape.k = p.k;
  shape.batch = p.batch;
  shape.a_stride = p.y.leading;
  shape.b_stride = p.x.leading;
  shape.c_stride = p.c_row;
  shape.a_batch_stride = p.a_batch;
  shape.b_batch_stride = p.b_batch;
  shape.dtype = static_cast<int32_t>(p.dtype);
  shape.c_dtype = static_cast<int32_t>(p.c_dtype);
  shape.transposed = (p.y.transpose ? 1 : 0) + (p.x.transpose ? 2 : 0);
  shape.epilogue = static_cast<int32_t>(p.epilogue);
  shape.alignment = Log2(AlignmentOfAll(p));
  shape.device = ActiveDevice();
  return shape;
}

// The algorithm of a product, asked for and measured the first time; nullopt where there is none,
// or where `steps` take less time.
Algorithm AlgorithmFor(const CublasProduct& p, const Call& call,
                       const std::function<void()>& steps) {
  const ProductShape shape = ShapeOf(p);
  // A measured product runs many times, which neither a capture nor a sum allows: the library's own
  // choice serves these.
  const auto measurable = [&] { return !p.accumulate && !IsCapturing(); };
  const std::optional<KnownAlgorithm> known = KnownAlgorithms::Get().Find(shape);
  if (known && (known->settled || !measurable())) return known->algorithm;
  const std::vector<cublasLtMatmulAlgo_t> candidates = call.Candidates();
  if (candidates.empty()) {
    KnownAlgorithms::Get().Add(shape, std::nullopt);
    return std::nullopt;
  }
  // Behind the library's algorithms, as one more to choose from.
  const auto steps_at = static_cast<int>(candidates.size());
  const int ways = steps_at + (steps ? 1 : 0);
  Choices& choices = Choices::Get();
  const bool measures = choices.measures() && choices.IsWorthMeasuring(p);
  bool settled = measurable() || !measures;
  int choice = 0;
  const std::optional<int> chosen = choices.measures() ? choices.cache().Find(shape) : std::nullopt;
  if (chosen) {
    choice = *chosen < ways ? *chosen : 0;
    settled = true;
  } else if (measures && measurable()) {
    std::vector<double> times;
    choice = choices.cache().Choose(shape, ways, [&](int way) {
      if (times.empty()) {
        times = LeastMilliseconds(static_cast<size_t>(ways), [&](size_t i) {
          if (i < candidates.size()) return call.Run(candidates[i]) == CUBLAS_STATUS_SUCCESS;
          steps();
          return true;
        });
      }
      return times[static_cast<size_t>(way)];
    });
    choices.Save();
  }
  const Algorithm algorithm =
      choice == steps_at ? std::nullopt : Algorithm(candidates[static_cast<size_t>(choice)]);
  KnownAlgorithms::Get().Add(shape, algorithm, settled);
  return algorithm;
}

}  // namespace

bool RunCublasProduct(const CublasProduct& p, void* workspace, const std::function<void()>& steps) {
  if (p.bias != nullptr && (AlignmentOf(p.bias) < kBiasAlignment || p.dtype == DType::kFloat64)) {
    return false;
  }
  if (p.aux != nullptr && AlignmentOf(p.aux) < kAuxAlignment) return false;
  const Call call(p, workspace);
  const Algorithm algorithm = AlgorithmFor(p, call, steps);
  if (!algorithm) return false;
  const cublasStatus_t status = call.Run(*algorithm);
  if (Declines(status)) {
    if (!p.accumulate) KnownAlgorithms::Get().Add(ShapeOf(p), std::nullopt);
    return false;
  }
  CheckCublas(status, kName);
  return true;
}

}  // namespace tessera::cuda
