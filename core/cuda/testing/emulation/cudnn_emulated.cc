// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface on the CPU, by its documentation: descriptors that keep their attributes,
// operation graphs of products, elementwise operations, reductions and reshapes, which are run one
// operation after the other with sums in float64 and every tensor rounded to its type. One engine
// is offered, for the patterns of fused attention alone (two products, or the five of its
// gradient), and it wants a workspace.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/cuda/cudnn.h"
#include "core/cuda/testing/emulation/work.h"
#include "core/dtype.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kWorkspace = 4096;

size_t SizeOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // enumerations
  }
}

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, Attribute> attributes;

  bool has(int name) const { return attributes.count(name) != 0; }
  template <typename T>
  std::vector<T> all(int name) const {
    const Attribute& attribute = attributes.at(name);
    std::vector<T> values(attribute.bytes.size() / sizeof(T));
    std::memcpy(values.data(), attribute.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  template <typename T>
  T get(int name) const {
    return all<T>(name).at(0);
  }
  const Descriptor& part(int name) const { return *get<const Descriptor*>(name); }
};

// What a descriptor cannot do without.
std::vector<int> Needed(const Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE,
              CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
              CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return {CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC};
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_MATMUL_COMP_TYPE};
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
              CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_MATMUL_DESC};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
              CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
              CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATIONGRAPH_OPS};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE,
              CUDNN_ATTR_ENGINEHEUR_DEVICEPROP};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
              CUDNN_ATTR_VARIANT_PACK_WORKSPACE};
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      return {CUDNN_ATTR_DEVICEPROP_DEVICE_ID};
    default:
      return {};
  }
}

// ---- Running a graph

struct Tensor4 {
  cudnnDataType_t type;
  std::array<int64_t, 4> dims;
  std::array<int64_t, 4> strides;
  bool by_value;
  uintptr_t alignment;
  char* data = nullptr;  // null: virtual

  int64_t Offset(const std::array<int64_t, 4>& i) const {
    return i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3] * strides[3];
  }
  int64_t Span() const {
    int64_t last = 0;
    for (size_t d = 0; d < 4; ++d) last += (dims[d] - 1) * strides[d];
    return last + 1;
  }
};

class Run {
 public:
  explicit Run(const Descriptor& graph) {
    for (const Descriptor* operation :
         graph.all<const Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      operations_.push_back(*operation);
      for (const auto& [name, attribute] : operation->attributes) {
        const auto* part = reinterpret_cast<const Descriptor* const*>(attribute.bytes.data());
        if ((*part)->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) Add(**part);
      }
    }
  }
  // False where a tensor has no memory, or memory that is not aligned. Values are read now.
  bool Bind(const std::vector<int64_t>& uids, const std::vector<void*>& pointers) {
    for (size_t i = 0; i < uids.size(); ++i) {
      const auto found = tensors_.find(uids[i]);
      if (found == tensors_.end()) return false;
      Tensor4& t = found->second;
      if (t.by_value) {
        std::vector<float>& value = values_[uids[i]];
        value.resize(1);
        std::memcpy(value.data(), pointers[i], 4);
        continue;
      }
      if (pointers[i] == nullptr || reinterpret_cast<uintptr_t>(pointers[i]) % t.alignment != 0) {
        return false;
      }
      t.data = static_cast<char*>(pointers[i]);
    }
    for (const auto& [uid, t] : tensors_) {
      if (virtual_.count(uid) == 0 && !t.by_value && t.data == nullptr) return false;
      if (t.by_value && values_.count(uid) == 0) return false;
    }
    return true;
  }
  void operator()() {
    for (const Descriptor& operation : operations_) Do(operation);
  }

 private:
  using Index = std::array<int64_t, 4>;

  void Add(const Descriptor& d) {
    Tensor4 t;
    t.type = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.by_value = d.get<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0;
    t.alignment = static_cast<uintptr_t>(d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
    const std::vector<int64_t> dims = d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const std::vector<int64_t> strides = d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    for (size_t i = 0; i < 4; ++i) {
      t.dims[i] = dims[i];
      t.strides[i] = strides[i];
    }
    const auto uid = d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    tensors_.emplace(uid, t);
    if (d.get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0) virtual_.insert(uid);
  }

  static int64_t Uid(const Descriptor& operation, int name) {
    return operation.part(name).get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  }
  std::vector<float>& Virtual(int64_t uid) {
    std::vector<float>& memory = values_[uid];
    if (memory.empty()) memory.resize(static_cast<size_t>(tensors_.at(uid).Span()));
    return memory;
  }
  double Load(int64_t uid, int64_t at) {
    const Tensor4& t = tensors_.at(uid);
    if (t.by_value && t.type == CUDNN_DATA_INT32) {
      int32_t value;
      std::memcpy(&value, values_.at(uid).data(), 4);
      return value;
    }
    if (t.data == nullptr) return Virtual(uid)[static_cast<size_t>(at)];
    switch (t.type) {
      case CUDNN_DATA_BFLOAT16:
        return static_cast<float>(reinterpret_cast<const BFloat16*>(t.data)[at]);
      case CUDNN_DATA_HALF:
        return static_cast<float>(reinterpret_cast<const Float16*>(t.data)[at]);
      default:
        return reinterpret_cast<const float*>(t.data)[at];
    }
  }
  void Store(int64_t uid, int64_t at, double value) {
    const Tensor4& t = tensors_.at(uid);
    const auto x = static_cast<float>(value);
    if (t.type == CUDNN_DATA_BFLOAT16) {
      const BFloat16 rounded = x;
      if (t.data == nullptr) {
        Virtual(uid)[static_cast<size_t>(at)] = rounded;
      } else {
        reinterpret_cast<BFloat16*>(t.data)[at] = rounded;
      }
    } else if (t.type == CUDNN_DATA_HALF) {
      const Float16 rounded = x;
      if (t.data == nullptr) {
        Virtual(uid)[static_cast<size_t>(at)] = rounded;
      } else {
        reinterpret_cast<Float16*>(t.data)[at] = rounded;
      }
    } else if (t.data == nullptr) {
      Virtual(uid)[static_cast<size_t>(at)] = x;
    } else {
      reinterpret_cast<float*>(t.data)[at] = x;
    }
  }
  // Where element i of a tensor of `dims` is in `t`: dims of one element are the same for all,
  // several heads share one.
  static int64_t Broadcast(const Tensor4& t, Index i, const Index& dims) {
    for (size_t d = 0; d < 4; ++d) i[d] /= dims[d] / t.dims[d];
    return t.Offset(i);
  }
  static void ForEach(const Index& dims, const std::function<void(const Index&)>& f) {
    Index i;
    for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
      for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
        for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
          for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
        }
      }
    }
  }

  void Do(const Descriptor& operation) {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return Matmul(Uid(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                      Uid(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                      Uid(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return Reduce(operation);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: {
        // The same memory with other dims and strides.
        const int64_t x = Uid(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        const int64_t y = Uid(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        const Tensor4& t = tensors_.at(y);
        ForEach(t.dims, [&](const Index& i) { Store(y, t.Offset(i), Load(x, t.Offset(i))); });
        return;
      }
      default:
        return Pointwise(operation);
    }
  }

  void Matmul(int64_t a, int64_t b, int64_t c) {
    const Tensor4& ta = tensors_.at(a);
    const Tensor4& tb = tensors_.at(b);
    const Tensor4& tc = tensors_.at(c);
    const int64_t rows = tc.dims[2], columns = tc.dims[3], inner = ta.dims[3];
    std::vector<double> left(static_cast<size_t>(rows * inner));
    std::vector<double> right(static_cast<size_t>(inner * columns));
    std::vector<double> sums(static_cast<size_t>(columns));
    ForEach({tc.dims[0], tc.dims[1], 1, 1}, [&](const Index& i) {
      const auto dense = [&](int64_t uid, const Tensor4& t, std::vector<double>* to) {
        size_t n = 0;
        ForEach({1, 1, t.dims[2], t.dims[3]}, [&](const Index& j) {
          (*to)[n++] = Load(uid, Broadcast(t, {i[0], i[1], j[2], j[3]},
                                           {tc.dims[0], tc.dims[1], t.dims[2], t.dims[3]}));
        });
      };
      dense(a, ta, &left);
      dense(b, tb, &right);
      for (int64_t m = 0; m < rows; ++m) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int64_t k = 0; k < inner; ++k) {
          const double x = left[static_cast<size_t>(m * inner + k)];
          const double* y = right.data() + k * columns;
          for (int64_t n = 0; n < columns; ++n) sums[static_cast<size_t>(n)] += x * y[n];
        }
        for (int64_t n = 0; n < columns; ++n) {
          Store(c, tc.Offset({i[0], i[1], m, n}), sums[static_cast<size_t>(n)]);
        }
      }
    });
  }

  void Reduce(const Descriptor& operation) {
    const int64_t x = Uid(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const int64_t y = Uid(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const bool max =
        operation.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
            .get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    const Tensor4& tx = tensors_.at(x);
    const Tensor4& ty = tensors_.at(y);
    std::vector<double> sums(static_cast<size_t>(ty.Span()),
                             max ? -std::numeric_limits<double>::infinity() : 0.0);
    ForEach(tx.dims, [&](const Index& i) {
      double& to = sums[static_cast<size_t>(Broadcast(ty, i, tx.dims))];
      const double value = Load(x, tx.Offset(i));
      to = max ? std::fmax(to, value) : to + value;
    });
    ForEach(ty.dims, [&](const Index& i) {
      Store(y, ty.Offset(i), sums[static_cast<size_t>(ty.Offset(i))]);
    });
  }

  void Pointwise(const Descriptor& operation) {
    const Descriptor& how = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    std::vector<int64_t> inputs;
    for (const int name :
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
          CUDNN_ATTR_OPERATION_POINTWISE_TDESC}) {
      if (operation.has(name)) inputs.push_back(Uid(operation, name));
    }
    const int64_t y = Uid(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const Tensor4& ty = tensors_.at(y);
    const size_t axis = mode == CUDNN_POINTWISE_GEN_INDEX
                            ? static_cast<size_t>(how.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS))
                            : 0;
    ForEach(ty.dims, [&](const Index& i) {
      double x[3] = {};
      for (size_t n = 0; n < inputs.size(); ++n) {
        x[n] = Load(inputs[n], Broadcast(tensors_.at(inputs[n]), i, ty.dims));
      }
      Store(y, ty.Offset(i),
            mode == CUDNN_POINTWISE_GEN_INDEX ? static_cast<double>(i[axis]) : Apply(mode, x));
    });
  }

  static double Apply(cudnnPointwiseMode_t mode, const double* x) {
    switch (mode) {
      case CUDNN_POINTWISE_ADD:
        return x[0] + x[1];
      case CUDNN_POINTWISE_SUB:
        return x[0] - x[1];
      case CUDNN_POINTWISE_MUL:
        return x[0] * x[1];
      case CUDNN_POINTWISE_DIV:
        return x[0] / x[1];
      case CUDNN_POINTWISE_EXP:
        return std::exp(x[0]);
      case CUDNN_POINTWISE_LOG:
        return std::log(x[0]);
      case CUDNN_POINTWISE_CMP_GE:
        return x[0] >= x[1] ? 1 : 0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return x[2] != 0 ? x[0] : x[1];
      default:
        return std::numeric_limits<double>::quiet_NaN();
    }
  }

  std::vector<Descriptor> operations_;
  std::map<int64_t, Tensor4> tensors_;
  std::set<int64_t> virtual_;
  std::map<int64_t, std::vector<float>> values_;  // of virtual tensors and of those by value
};

// ---- The library's functions

thread_local std::string last_error;

cudnnStatus_t Fail(cudnnStatus_t status, const char* why) {
  last_error = why;
  return status;
}

Descriptor* Of(cudnnBackendDescriptor_t descriptor) { return static_cast<Descriptor*>(descriptor); }

size_t GetVersion() { return CUDNN_VERSION; }
const char* GetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_of_the_emulation";
}
void GetLastErrorString(char* message, size_t size) {
  std::strncpy(message, last_error.c_str(), size - 1);
  message[size - 1] = '\0';
  last_error.clear();
}

// A handle is the stream it was given.
cudnnStatus_t Create(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new cudaStream_t(nullptr));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t SetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *reinterpret_cast<cudaStream_t*>(handle) = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type,
                               cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type, false, {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t DestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete Of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (Of(descriptor)->finalized) return Fail(CUDNN_STATUS_BAD_PARAM, "already finalized");
  if (count < 1 || values == nullptr) return Fail(CUDNN_STATUS_BAD_PARAM, "no value");
  const auto* bytes = static_cast<const char*>(values);
  Attribute attribute{type, count, {bytes, bytes + static_cast<size_t>(count) * SizeOf(type)}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      if (!static_cast<const Descriptor* const*>(values)[i]->finalized) {
        return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part is not finalized");
      }
    }
  }
  Of(descriptor)->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = *Of(descriptor);
  for (const int name : Needed(d)) {
    if (!d.has(name)) return Fail(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
  }
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

bool IsAttention(const Descriptor& graph) {
  int products = 0;
  for (const Descriptor* operation : graph.all<const Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    products += operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ? 1 : 0;
  }
  return products == 2 || products == 5;
}

cudnnStatus_t GetAttribute(cudnnBackendDescriptor_t const descriptor,
                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                           int64_t most, int64_t* count, void* values) {
  const Descriptor& d = *Of(descriptor);
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const Descriptor& graph = d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      const auto mode = d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
      if (mode != CUDNN_HEUR_MODE_A || most < 1 || !IsAttention(graph)) {
        *count = 0;
        return CUDNN_STATUS_SUCCESS;
      }
      Descriptor& configuration = **static_cast<Descriptor**>(values);
      configuration.attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] =
          d.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      configuration.finalized = true;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      (*static_cast<Descriptor**>(values))->finalized = true;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      *static_cast<int64_t*>(values) = 0;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<int64_t*>(values) = kWorkspace;
      return CUDNN_STATUS_SUCCESS;
    default:
      return Fail(CUDNN_STATUS_NOT_SUPPORTED, "this attribute is not emulated");
  }
}

cudnnStatus_t Execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t variant_pack) {
  const Descriptor& pack = *Of(variant_pack);
  if (!Of(plan)->finalized || !pack.finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or variant pack");
  }
  const Descriptor& graph = Of(plan)
                                ->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                .part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  auto* workspace = pack.get<char*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (workspace == nullptr) return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "workspace");
  Run run(graph);
  if (!run.Bind(pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a tensor's memory is missing or not aligned");
  }
  const cudaError_t error =
      emulation::Enqueue(*reinterpret_cast<cudaStream_t*>(handle), [run, workspace]() mutable {
        run();
        std::memset(workspace, 0x5a, kWorkspace);
      });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS
                              : Fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream refuses");
}

}  // namespace

StatusOr<Cudnn> LoadCudnn() {
  return Cudnn{GetVersion,       GetErrorString,    GetLastErrorString, Create,       SetStream,
               CreateDescriptor, DestroyDescriptor, Finalize,           SetAttribute, GetAttribute,
               Execute};
}

}  // namespace tessera::cuda
