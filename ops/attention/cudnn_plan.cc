// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/cudnn_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::cuda {
namespace {

constexpr int64_t kMostConfigurations = 32;
constexpr int64_t kMostNotes = CUDNN_NUMERICAL_NOTE_TYPE_COUNT;

cudnnDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kInt32:
      return CUDNN_DATA_INT32;
    case DType::kBool:
      return CUDNN_DATA_BOOLEAN;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

cudnnPointwiseMode_t ModeOf(GraphOp op) {
  switch (op) {
    case GraphOp::kAdd:
      return CUDNN_POINTWISE_ADD;
    case GraphOp::kSub:
      return CUDNN_POINTWISE_SUB;
    case GraphOp::kMul:
      return CUDNN_POINTWISE_MUL;
    case GraphOp::kDiv:
      return CUDNN_POINTWISE_DIV;
    case GraphOp::kExp:
      return CUDNN_POINTWISE_EXP;
    case GraphOp::kLog:
      return CUDNN_POINTWISE_LOG;
    case GraphOp::kIndex:
      return CUDNN_POINTWISE_GEN_INDEX;
    case GraphOp::kGreaterEqual:
      return CUDNN_POINTWISE_CMP_GE;
    default:
      return CUDNN_POINTWISE_BINARY_SELECT;
  }
}

// Of every row of the batch: a part of it may begin at any.
int64_t AlignmentOf(const GraphTensor& t) {
  constexpr int64_t kBytes = 16;
  const auto size = static_cast<int64_t>(DTypeSize(t.dtype));
  const bool rows_aligned = t.strides[0] * size % kBytes == 0;
  return t.place == GraphTensor::Place::kDevice && !rows_aligned ? size : kBytes;
}

// Makes descriptors, and keeps all of them.
class Translation {
 public:
  Status AddTensor(const GraphTensor& t) {
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, t.uid);
    tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(t.dtype));
    tensor.SetArray(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t.dims.data());
    tensor.SetArray(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t.strides.data());
    tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, AlignmentOf(t));
    tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
               t.place == GraphTensor::Place::kVirtual);
    tensor.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN,
               t.place == GraphTensor::Place::kByValue);
    tensors_[t.uid] = tensor.get();
    return Keep(std::move(tensor));
  }

  Status AddOperation(const GraphOperation& operation) {
    switch (operation.op) {
      case GraphOp::kMatmul:
        return AddMatmul(operation);
      case GraphOp::kMaxOf:
      case GraphOp::kSumOf:
        return AddReduction(operation);
      case GraphOp::kView:
        return AddView(operation);
      default:
        return AddPointwise(operation);
    }
  }

  StatusOr<cudnnBackendDescriptor_t> Finish() {
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.SetArray(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   static_cast<int64_t>(operations_.size()), operations_.data());
    const cudnnBackendDescriptor_t raw = graph.get();
    TESSERA_RETURN_IF_ERROR(Keep(std::move(graph)));
    return raw;
  }

  Status Keep(CudnnDescriptor descriptor) {
    TESSERA_RETURN_IF_ERROR(descriptor.Finalize());
    parts_.push_back(std::move(descriptor));
    return OkStatus();
  }
  std::vector<CudnnDescriptor> Take() { return std::move(parts_); }

 private:
  void SetTensor(CudnnDescriptor* to, cudnnBackendAttributeName_t name, int64_t uid) {
    to->Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensors_.at(uid));
  }
  Status KeepOperation(CudnnDescriptor operation) {
    operations_.push_back(operation.get());
    return Keep(std::move(operation));
  }

  Status AddMatmul(const GraphOperation& operation) {
    CudnnDescriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(operation.compute));
    TESSERA_RETURN_IF_ERROR(how.Finalize());
    CudnnDescriptor matmul(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    matmul.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    SetTensor(&matmul, CUDNN_ATTR_OPERATION_MATMUL_ADESC, operation.inputs[0]);
    SetTensor(&matmul, CUDNN_ATTR_OPERATION_MATMUL_BDESC, operation.inputs[1]);
    SetTensor(&matmul, CUDNN_ATTR_OPERATION_MATMUL_CDESC, operation.output);
    parts_.push_back(std::move(how));
    return KeepOperation(std::move(matmul));
  }

  Status AddReduction(const GraphOperation& operation) {
    CudnnDescriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(operation.compute));
    how.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
            operation.op == GraphOp::kMaxOf ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD);
    TESSERA_RETURN_IF_ERROR(how.Finalize());
    CudnnDescriptor reduction(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    reduction.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    SetTensor(&reduction, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, operation.inputs[0]);
    SetTensor(&reduction, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, operation.output);
    parts_.push_back(std::move(how));
    return KeepOperation(std::move(reduction));
  }

  Status AddView(const GraphOperation& operation) {
    CudnnDescriptor view(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SetTensor(&view, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, operation.inputs[0]);
    SetTensor(&view, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, operation.output);
    return KeepOperation(std::move(view));
  }

  Status AddPointwise(const GraphOperation& operation) {
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, ModeOf(operation.op));
    how.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, TypeOf(operation.compute));
    if (operation.axis >= 0) {
      how.Set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, int64_t{operation.axis});
    }
    TESSERA_RETURN_IF_ERROR(how.Finalize());
    CudnnDescriptor pointwise(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    pointwise.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    constexpr cudnnBackendAttributeName_t kInputs[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (size_t i = 0; i < operation.inputs.size(); ++i) {
      SetTensor(&pointwise, kInputs[i], operation.inputs[i]);
    }
    SetTensor(&pointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, operation.output);
    parts_.push_back(std::move(how));
    return KeepOperation(std::move(pointwise));
  }

  std::map<int64_t, cudnnBackendDescriptor_t> tensors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<CudnnDescriptor> parts_;
};

StatusOr<std::vector<CudnnDescriptor>> Configurations(cudnnBackendDescriptor_t graph,
                                                      const CudnnDescriptor& device,
                                                      cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristics.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  TESSERA_RETURN_IF_ERROR(heuristics.Finalize());
  std::vector<CudnnDescriptor> found;
  for (int64_t i = 0; i < kMostConfigurations; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  }
  TESSERA_RETURN_IF_ERROR(heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, &found));
  return found;
}

struct Engine {
  int64_t index = 0;
  std::string refusal;  // why it is not used; empty when it may be
};

StatusOr<Engine> EngineOf(const CudnnDescriptor& configuration) {
  std::vector<CudnnDescriptor> engines;
  engines.emplace_back(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  TESSERA_RETURN_IF_ERROR(configuration.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, &engines));
  if (engines.empty()) return Internal("cuDNN: a configuration without an engine");
  Engine engine;
  TESSERA_ASSIGN_OR_RETURN(engine.index, engines[0].Int64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<cudnnBackendNumericalNote_t> notes,
      engines[0].Enums<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                    CUDNN_TYPE_NUMERICAL_NOTE, kMostNotes));
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
    engine.refusal = "is not deterministic";
  } else if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
             has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) {
    engine.refusal = "sums in less than float32";
  }
  return engine;
}

}  // namespace

StatusOr<CudnnPlan> CudnnPlan::Build(const OperationGraph& graph, const CudnnDescriptor& device,
                                     size_t workspace_limit) {
  Translation translation;
  for (const GraphTensor& t : graph.tensors) {
    TESSERA_RETURN_IF_ERROR(translation.AddTensor(t));
  }
  for (const GraphOperation& operation : graph.operations) {
    TESSERA_RETURN_IF_ERROR(translation.AddOperation(operation));
  }
  TESSERA_ASSIGN_OR_RETURN(const cudnnBackendDescriptor_t raw_graph, translation.Finish());

  std::string refusals;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    StatusOr<std::vector<CudnnDescriptor>> configurations = Configurations(raw_graph, device, mode);
    if (!configurations.ok()) {
      refusals += Concat("; ", Message(configurations.status()));
      continue;
    }
    for (CudnnDescriptor& configuration : *configurations) {
      TESSERA_ASSIGN_OR_RETURN(const Engine engine, EngineOf(configuration));
      if (!engine.refusal.empty()) {
        refusals += Concat("; engine ", engine.index, " ", engine.refusal);
        continue;
      }
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
      const Status finalized = plan.Finalize();
      if (!finalized.ok()) {
        refusals += Concat("; engine ", engine.index, ": ", Message(finalized));
        continue;
      }
      TESSERA_ASSIGN_OR_RETURN(const int64_t bytes,
                               plan.Int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
      if (static_cast<size_t>(bytes) > workspace_limit) {
        refusals += Concat("; engine ", engine.index, " needs ", bytes, " bytes of workspace");
        continue;
      }
      std::vector<CudnnDescriptor> parts = translation.Take();
      parts.push_back(std::move(configuration));
      CudnnPlan built(std::move(parts), std::move(plan));
      built.workspace_bytes_ = static_cast<size_t>(bytes);
      built.engine_ = engine.index;
      return built;
    }
  }
  return NotFound("cuDNN has no engine for it", refusals);
}

Status CudnnPlan::Run(const std::vector<int64_t>& uids, const std::vector<const void*>& pointers,
                      void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(uids.size());
  pack.SetArray(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data());
  pack.SetArray(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  TESSERA_RETURN_IF_ERROR(pack.Finalize());
  return CudnnExecute(plan_, pack);
}

}  // namespace tessera::cuda
