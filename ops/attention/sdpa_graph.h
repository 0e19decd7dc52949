// SPDX-License-Identifier: Apache-2.0
// Attention as a graph of small operations, which cuDNN fuses into its own flash kernels: a plain
// description, free of cuDNN and CUDA (ops/attention/cudnn_plan.h translates it).
//
//   SdpaShape shape = *SdpaShape::Of(args);          // nullopt: cuDNN is not asked for these
//   OperationGraph forward = SdpaForwardGraph(shape);
//   OperationGraph backward = SdpaBackwardGraph(shape);
//
// Forward:  S = scale q k^T, masked;  lse = max S + log sum exp(S - max S);  o = softmax(S) v.
// Backward: delta = sum over d of d_o * o;  P = exp(S - lse);  dV = P^T d_o;
//           dS = scale P (d_o v^T - delta);  dQ = dS k;  dK = dS^T q
// (Dao 2023, arXiv:2307.08691). The operations stand in the order and the form that cuDNN's fused
// engines recognise; k (and v, backward) are described transposed, by strides. dQ is written by one
// product without a float32 sum of its own in memory, which is what the deterministic engines take.
// With grouped heads the parts of dK and dV of the query heads are rounded before they are added.
//
// Letters: B batch, H query heads, G key/value heads (H a multiple of G), Tq and Tk lengths, D head
// size. Every tensor has four dims.
#ifndef TESSERA_OPS_ATTENTION_SDPA_GRAPH_H_
#define TESSERA_OPS_ATTENTION_SDPA_GRAPH_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {

using Dims4 = std::array<int64_t, 4>;

struct GraphTensor {
  enum class Place : uint8_t {
    kVirtual,  // never in memory
    kDevice,   // memory of the GPU, 16-byte aligned (elements where rows of the batch are not)
    kByValue,  // one element in the host's memory
  };
  int64_t uid = 0;
  const char* name = "";
  DType dtype = DType::kFloat32;
  Place place = Place::kVirtual;
  Dims4 dims{1, 1, 1, 1};
  Dims4 strides{1, 1, 1, 1};  // in elements
};

enum class GraphOp : uint8_t {
  kMatmul,  // of the last two dims
  kAdd,
  kSub,
  kMul,
  kDiv,
  kExp,
  kLog,
  kIndex,         // the element's index along `axis`
  kGreaterEqual,  // to bool
  kSelect,        // inputs: where true, where false, bool
  kMaxOf,         // over the dims that are 1 in the output
  kSumOf,
  kView,  // the input, with the output's dims and strides
};

struct GraphOperation {
  GraphOp op = GraphOp::kMatmul;
  std::vector<int64_t> inputs;  // uids
  int64_t output = 0;
  DType compute = DType::kFloat32;
  int axis = -1;
};

struct OperationGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperation> operations;

  const GraphTensor& tensor(int64_t uid) const;
  // One line per operation: "scores_BHQK[..] = matmul(q_BHQD, k_BGDK)".
  std::string ToString() const;
};

// The tensors that whoever runs the graph points at.
struct SdpaUid {
  enum : int64_t {
    kQ = 1,
    kK,
    kV,
    kO,
    kLse,       // [B, H, Tq, 1] float32
    kScale,     // by value, float32
    kMinusInf,  // by value, float32: -infinity; causal only
    kOffset,    // by value, int32: the query offset; causal with an offset only
    kDO,
    kDelta,  // [B, H, Tq, 1] float32; the graph's own, between its kernels
    kOne,    // by value, float32: 1
    kDQ,
    kDK,
    kDV,
    kFirstVirtual = 100,
  };
};

// All that a plan depends on.
struct SdpaShape {
  using Strides = std::array<int64_t, 3>;  // of batch, head, time, in elements; D is adjacent

  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t q_len = 0;
  int64_t k_len = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kBFloat16;
  bool causal = false;       // query i sees keys j <= i + query_offset
  int64_t query_offset = 0;  // 0 when not causal
  Strides q{}, k{}, v{}, o{};
  bool backward = false;
  Strides d_o{}, dq{}, dk{}, dv{};  // zero unless backward
  int device = 0;

  friend auto operator<=>(const SdpaShape&, const SdpaShape&) = default;

  // nullopt where there is something that the graphs do not describe: another dtype than bfloat16
  // and float16, dropout, a bias, masks other than causal, rows without any key, a head size that
  // is not a multiple of 8 up to 128, elements that are not 16-byte aligned.
  static std::optional<SdpaShape> Of(const FlashArgs& args);
  static std::optional<SdpaShape> Of(const FlashBackwardArgs& args);

  // "bfloat16 q [32, 12, 1024, 64], k [32, 12, 1024, 64], causal", for messages.
  std::string ToString() const;
};

// How many batch rows of a backward pass cuDNN computes at once, in equal parts (the last may begin
// among the rows of the one before), so that what its deterministic engine keeps fits into `bytes`:
// dS, H Tq Tk half-precision numbers per batch row with both lengths rounded up to 128, and dk and
// dv of every head where heads share them (cuDNN 9.19). 0: not even one.
int64_t SdpaRowsAtOnce(const SdpaShape& shape, size_t bytes);

OperationGraph SdpaForwardGraph(const SdpaShape& shape);
OperationGraph SdpaBackwardGraph(const SdpaShape& shape);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_SDPA_GRAPH_H_
