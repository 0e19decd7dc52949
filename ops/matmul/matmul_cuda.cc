// Matrix products on the GPU through cuBLASLt, the bias in its epilogue. The algorithm is measured
// per shape (ops/matmul/algorithm_cache.h): TESSERA_MATMUL_TUNING=off takes the library's own, and
// TESSERA_MATMUL_TUNING=<file> reads the choices there and adds new ones. float32 is float32: TF32
// is off. Partial sums of a split inner dim are added in float32, in a fixed order.
#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/cublaslt.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "core/file.h"
#include "core/raw_kernels.h"
#include "ops/matmul/algorithm_cache.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/plain_product.h"
#include "ops/matmul/product_layout.h"

namespace tessera::cuda {
namespace {

constexpr char kName[] = "matmul";
constexpr size_t kWorkspaceLimit = size_t{32} << 20;
constexpr int kCandidates = 8;

// One batch dim at most: [batch, m, n], the operands where args says, shifted by the caller.
struct Product {
  const MatmulArgs* args;
  const char* a;
  const char* b;
  char* c;
  int64_t a_row, a_col, b_row, b_col;
  int64_t batch = 1;
  int64_t a_batch = 0;
  int64_t b_batch = 0;
};

void RunPlain(const Product& p) {
  const MatmulArgs& args = *p.args;
  RunPlainProduct({args.dtype, args.c_dtype, args.m, args.n, args.k, p.batch, p.a_row, p.a_col,
                   p.a_batch, p.b_row, p.b_col, p.b_batch, p.a, p.b, args.bias, p.c});
}

// ---- cuBLASLt
// -------------------------------------------------------------------------------------

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
  Description(DType dtype, bool x_transposed, bool y_transposed, DType c_dtype, const void* bias) {
    const bool wide = dtype == DType::kFloat64;
    CheckCublas(
        CublasLt::Get().MatmulDescCreate(&desc_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                         wide ? CUDA_R_64F : CUDA_R_32F),
        kName);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, x_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, y_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias == nullptr) return;
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(c_dtype));
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
  Preference(const void* x, const void* y, const void* d) {
    CheckCublas(CublasLt::Get().MatmulPreferenceCreate(&preference_), kName);
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceLimit);
    // Never parts that are added in half precision.
    Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(x));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(y));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(d));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(d));
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
  bool measures() const { return measures_; }
  AlgorithmCache& cache() { return cache_; }
  void Save() {
    if (file_.empty()) return;
    const absl::Status status = WriteFileAtomically(file_, cache_.Format(Header()));
    TESSERA_CHECK(status.ok(), kName, Message(status));
  }

 private:
  Choices() {
    const char* setting = std::getenv("TESSERA_MATMUL_TUNING");
    const std::string value = setting != nullptr ? setting : "";
    measures_ = value != "off";
    if (value.empty() || value == "off" || value == "on") return;
    file_ = value;
    const absl::StatusOr<std::string> text = ReadFile(file_);
    if (!text.ok()) return;  // the first run makes it
    const absl::Status status = cache_.Parse(*text, Header());
    TESSERA_CHECK(status.ok(), kName, file_, ": ", Message(status));
  }
  static std::string Header() {
    return Concat("cuBLASLt ", CublasLt::Get().GetVersion(), ", ", Properties(ActiveDevice()).name);
  }

  bool measures_ = true;
  std::string file_;
  AlgorithmCache cache_;
};

// Algorithms of shapes that were asked for, so that the library is asked once.
struct KnownAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace;
};
class KnownAlgorithms {
 public:
  static KnownAlgorithms& Get() {
    static auto* known = new KnownAlgorithms;
    return *known;
  }
  std::optional<KnownAlgorithm> Find(const ProductShape& shape) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(shape);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }
  void Add(const ProductShape& shape, const KnownAlgorithm& algorithm) {
    std::lock_guard<std::mutex> lock(mutex_);
    known_[shape] = algorithm;
  }

 private:
  std::mutex mutex_;
  std::map<ProductShape, KnownAlgorithm> known_;
};

// Everything that one call of cuBLASLt needs.
struct Call {
  const Product& product;
  Description description;
  Layout x;
  Layout y;
  Layout d;

  cublasStatus_t Run(const cublasLtMatmulAlgo_t& algorithm, void* workspace, size_t bytes) const {
    const float one = 1.0f;
    const float zero = 0.0f;
    const double wide_one = 1.0;
    const double wide_zero = 0.0;
    const bool wide = product.args->dtype == DType::kFloat64;
    return CublasLt::Get().Matmul(
        CublasLt::HandleOfActiveDevice(), description.get(),
        wide ? static_cast<const void*>(&wide_one) : &one, product.b, x.get(), product.a, y.get(),
        wide ? static_cast<const void*>(&wide_zero) : &zero, product.c, d.get(), product.c, d.get(),
        &algorithm, workspace, bytes, CurrentStream());
  }
};

bool IsCapturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CheckCuda(cudaStreamIsCapturing(CurrentStream(), &status), kName);
  return status != cudaStreamCaptureStatusNone;
}

// Milliseconds of one call, the least of three measurements; infinity where it fails.
double Measure(const Call& call, const cublasLtMatmulHeuristicResult_t& candidate,
               void* workspace) {
  constexpr int kRounds = 3;
  constexpr int kCalls = 4;
  const Event begin(/*timing=*/true);
  const Event end(/*timing=*/true);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {  // the first one warms up
    begin.Record(CurrentStream());
    for (int i = 0; i < kCalls; ++i) {
      const cublasStatus_t status = call.Run(candidate.algo, workspace, candidate.workspaceSize);
      if (status != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<double>::infinity();
    }
    end.Record(CurrentStream());
    end.Synchronize();
    if (round > 0) best = std::min<double>(best, end.MillisecondsSince(begin) / kCalls);
  }
  return best;
}

// The algorithm for a shape, asked for and measured the first time; nullopt where there is none.
std::optional<KnownAlgorithm> AlgorithmFor(const Call& call, const ProductShape& shape) {
  if (const auto known = KnownAlgorithms::Get().Find(shape)) return known;
  const Product& p = call.product;
  const Preference preference(p.b, p.a, p.c);
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int found = 0;
  const cublasStatus_t status = CublasLt::Get().MatmulAlgoGetHeuristic(
      CublasLt::HandleOfActiveDevice(), call.description.get(), call.x.get(), call.y.get(),
      call.d.get(), call.d.get(), preference.get(), kCandidates, results, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  CheckCublas(status, kName);
  std::vector<cublasLtMatmulHeuristicResult_t> usable;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) usable.push_back(results[i]);
  }
  if (usable.empty()) return std::nullopt;
  Choices& choices = Choices::Get();
  const auto count = static_cast<int>(usable.size());
  int choice = 0;
  if (const std::optional<int> chosen = choices.cache().Find(shape)) {
    choice = *chosen < count ? *chosen : 0;
  } else if (choices.measures() && !IsCapturing()) {
    const Workspace workspace(kWorkspaceLimit);
    choice = choices.cache().Choose(shape, count, [&](int i) {
      return Measure(call, usable[static_cast<size_t>(i)], workspace.data());
    });
    choices.Save();
  }
  const cublasLtMatmulHeuristicResult_t& best = usable[static_cast<size_t>(choice)];
  const KnownAlgorithm known{best.algo, best.workspaceSize};
  // What a captured step took without measuring is asked for again later.
  if (!choices.measures() || choices.cache().Find(shape)) KnownAlgorithms::Get().Add(shape, known);
  return known;
}

int Log2(uint32_t n) {
  int bits = 0;
  while ((n >>= 1) != 0) ++bits;
  return bits;
}

// False where cuBLASLt has no algorithm for it.
bool RunCublas(const Product& p, const ColumnMajor& x, const ColumnMajor& y) {
  const MatmulArgs& args = *p.args;
  // The epilogue reads the bias 16 bytes at a time.
  if (args.bias != nullptr && (AlignmentOf(args.bias) < 16 || args.dtype == DType::kFloat64)) {
    return false;
  }
  ProductShape shape;
  shape.m = args.m;
  shape.n = args.n;
  shape.k = args.k;
  shape.batch = p.batch;
  shape.a_stride = y.leading;
  shape.b_stride = x.leading;
  shape.a_batch_stride = p.a_batch;
  shape.b_batch_stride = p.b_batch;
  shape.dtype = static_cast<int32_t>(args.dtype);
  shape.c_dtype = static_cast<int32_t>(args.c_dtype);
  shape.transposed = (y.transpose ? 1 : 0) + (x.transpose ? 2 : 0);
  shape.bias = args.bias != nullptr ? 1 : 0;
  shape.alignment = Log2(std::min({AlignmentOf(p.a), AlignmentOf(p.b), AlignmentOf(p.c)}));
  shape.device = ActiveDevice();
  const ColumnMajor d{args.n, args.m, args.n, false};
  const Call call{p, Description(args.dtype, x.transpose, y.transpose, args.c_dtype, args.bias),
                  Layout(args.dtype, x, p.batch, p.b_batch),
                  Layout(args.dtype, y, p.batch, p.a_batch),
                  Layout(args.c_dtype, d, p.batch, args.m * args.n)};
  const std::optional<KnownAlgorithm> known = AlgorithmFor(call, shape);
  if (!known) return false;
  const Workspace workspace(known->workspace);
  CheckCublas(call.Run(known->algorithm, workspace.data(), known->workspace), kName);
  return true;
}

// ---- Strided operands and batches
// -----------------------------------------------------------------

// A packed copy [batch, d0, d1] of a matrix that cuBLASLt cannot read where it is.
class Packed {
 public:
  Packed(const char* data, DType dtype, int64_t batch, int64_t d0, int64_t d1, int64_t batch_stride,
         int64_t s0, int64_t s1)
      : memory_(static_cast<size_t>(batch * d0 * d1) * DTypeSize(dtype)) {
    const Device device = Device::Cuda(ActiveDevice());
    const Shape shape{batch, d0, d1};
    copy_kernel.For(device)(
        {{memory_.data(), dtype, device, shape, ContiguousStrides(shape)},
         {const_cast<char*>(data), dtype, device, shape, Shape{batch_stride, s0, s1}}});
  }
  const char* data() const { return memory_.as<char>(); }

 private:
  Workspace memory_;
};

void RunProduct(Product p) {
  const MatmulArgs& args = *p.args;
  if (args.k == 0) return RunPlain(p);
  std::optional<Packed> packed_a;
  std::optional<Packed> packed_b;
  std::optional<ColumnMajor> y = AsColumnMajor(args.m, args.k, p.a_row, p.a_col);
  if (!y) {
    const int64_t count = p.a_batch == 0 ? 1 : p.batch;
    packed_a.emplace(p.a, args.dtype, count, args.m, args.k, p.a_batch, p.a_row, p.a_col);
    p.a = packed_a->data();
    p.a_row = args.k;
    p.a_col = 1;
    p.a_batch = count == 1 ? 0 : args.m * args.k;
    y = AsColumnMajor(args.m, args.k, p.a_row, p.a_col);
  }
  std::optional<ColumnMajor> x = AsColumnMajor(args.k, args.n, p.b_row, p.b_col);
  if (!x) {
    const int64_t count = p.b_batch == 0 ? 1 : p.batch;
    packed_b.emplace(p.b, args.dtype, count, args.k, args.n, p.b_batch, p.b_row, p.b_col);
    p.b = packed_b->data();
    p.b_row = args.n;
    p.b_col = 1;
    p.b_batch = count == 1 ? 0 : args.k * args.n;
    x = AsColumnMajor(args.k, args.n, p.b_row, p.b_col);
  }
  if (RunCublas(p, *x, *y)) return;
  // Without the epilogue, where that is what there is no algorithm for.
  MatmulArgs without_bias = args;
  without_bias.bias = nullptr;
  Product product = p;
  product.args = &without_bias;
  if (args.bias != nullptr && RunCublas(product, *x, *y)) {
    const Device device = Device::Cuda(ActiveDevice());
    const Shape shape{p.batch * args.m, args.n};
    add_kernel.For(device)(
        {{p.c, args.c_dtype, device, shape, ContiguousStrides(shape)},
         {const_cast<void*>(args.bias), args.c_dtype, device, shape, Shape{0, 1}}});
    return;
  }
  RunPlain(p);
}

void MatmulCuda(const MatmulArgs& args) {
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  const auto c_size = static_cast<int64_t>(DTypeSize(args.c_dtype));
  Product product{&args,
                  static_cast<const char*>(args.a),
                  static_cast<const char*>(args.b),
                  static_cast<char*>(args.c),
                  args.a_row_stride,
                  args.a_col_stride,
                  args.b_row_stride,
                  args.b_col_stride};
  // Adjacent batch dims that both operands allow are one; the last runs inside cuBLASLt.
  Shape batch;
  Shape a_strides;
  Shape b_strides;
  for (int d = 0; d < args.batch.ndim(); ++d) {
    if (args.batch[d] == 1) continue;
    const int last = batch.ndim() - 1;
    if (last >= 0 && a_strides[last] == args.a_batch_strides[d] * args.batch[d] &&
        b_strides[last] == args.b_batch_strides[d] * args.batch[d]) {
      batch[last] *= args.batch[d];
      a_strides[last] = args.a_batch_strides[d];
      b_strides[last] = args.b_batch_strides[d];
    } else {
      batch.push_back(args.batch[d]);
      a_strides.push_back(args.a_batch_strides[d]);
      b_strides.push_back(args.b_batch_strides[d]);
    }
  }
  const int last = batch.ndim() - 1;
  int64_t outer = 1;
  for (int d = 0; d < last; ++d) outer *= batch[d];
  if (last >= 0) {
    product.batch = batch[last];
    product.a_batch = a_strides[last];
    product.b_batch = b_strides[last];
  }
  for (int64_t i = 0; i < outer; ++i) {
    int64_t a_offset = 0;
    int64_t b_offset = 0;
    int64_t index = i;
    for (int d = last - 1; d >= 0; --d) {
      a_offset += index % batch[d] * a_strides[d];
      b_offset += index % batch[d] * b_strides[d];
      index /= batch[d];
    }
    Product part = product;
    part.a += a_offset * size;
    part.b += b_offset * size;
    part.c += i * product.batch * args.m * args.n * c_size;
    RunProduct(part);
  }
}

TESSERA_REGISTER_KERNEL(matmul_kernel, DeviceType::kCuda, MatmulCuda);

}  // namespace
}  // namespace tessera::cuda
