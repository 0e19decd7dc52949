// SPDX-License-Identifier: Apache-2.0
// Runs operations on the tensors of a file: for tests/parity/operations.py, which computes the same
// with PyTorch.
//
//   operations IN.safetensors OUT.safetensors
//
// IN has `NAME@CASE/x0`, `/x1`, ... (inputs) and `/s0`, `/s1`, ... (gradients of the outputs), NAME
// one of the table below; OUT gets `/y0`, ... (outputs) and `/g0`, ... (gradients of the inputs).
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <string>

#include "autograd/autograd.h"
#include "nn/recurrent.h"
#include "ops/channel_norm/channel_norm.h"
#include "ops/convolution/convolution.h"
#include "ops/einsum/einsum.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/loss/loss.h"
#include "ops/pooling/interpolate.h"
#include "ops/pooling/pooling.h"
#include "ops/rearrange/rearrange.h"
#include "ops/reduction/reduction.h"
#include "ops/scan/scan.h"
#include "ops/sort/sort.h"
#include "ops/view/view.h"
#include "tests/parity/tensor_file.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

Operation One(Tensor (*f)(const Tensor&)) {
  return [f](const Tensors& in) { return Tensors{f(in[0])}; };
}
Operation Einsums(const char* equation) {
  return [equation](const Tensors& in) { return Tensors{Einsum(equation, in)}; };
}
// Of x, weight and bias.
template <auto kFunction, typename Options>
Operation ConvolutionBy(const Options& options) {
  return [options](const Tensors& in) { return Tensors{kFunction(in[0], in[1], in[2], options)}; };
}
Operation Bilinear(bool align_corners) {
  return [align_corners](const Tensors& in) {
    return Tensors{Interpolate(in[0], {11, 4},
                               {.mode = Interpolation::kBilinear, .align_corners = align_corners})};
  };
}
Tensors Both(const Sorted& sorted) { return {sorted.values, sorted.indices}; }

// Each reduction of a loss of the first two inputs.
template <typename Loss>
Operation Reductions(Loss loss) {
  return [loss](const Tensors& in) {
    Tensors out;
    for (const auto reduction : {LossReduction::kNone, LossReduction::kSum, LossReduction::kMean}) {
      out.push_back(loss(in[0], in[1], reduction));
    }
    return out;
  };
}
Operation Divergences(bool log_target) {
  return [log_target](const Tensors& in) {
    Tensors out;
    for (const auto reduction : {DivergenceReduction::kNone, DivergenceReduction::kSum,
                                 DivergenceReduction::kMean, DivergenceReduction::kBatchMean}) {
      out.push_back(KlDivergence(in[0], in[1], {.reduction = reduction, .log_target = log_target}));
    }
    return out;
  };
}

// 0.5, 1, 1.5, ...: a weight per column of x.
Tensor ColumnWeights(const Tensor& x) {
  return Mul(Add(CastCopy(Arange(x.size(-1)), DType::kFloat32), 1), 0.5);
}

// Inputs: x, first states (of Lstm two), parameters, lengths where they are integers.
template <typename Layers, typename... Kind>
Operation Recurrents(int states, Kind... kind) {
  return [=](const Tensors& in) {
    const int64_t hidden = in[1].size(2);
    Layers layers({.input_size = in[0].size(2),
                   .hidden_size = hidden,
                   .num_layers = static_cast<int>(in[1].size(0) / 2),
                   .bidirectional = true},
                  kind..., nn::Scope::Root({}));
    auto next = in.begin() + 1 + states;
    for (nn::Parameter* p : layers.Parameters()) p->tensor = *next++;
    return layers
        .Forward(in[0], {},
                 {.lengths = next == in.end() ? Tensor() : *next,
                  .hidden = in[1],
                  .cell = states == 2 ? in[2] : Tensor()})
        .tensors();
  };
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Dims and numbers are those of operations.py.
const std::map<std::string, Operation>& Operations() {
  static const std::map<std::string, Operation> operations = {
      {"operators",
       [](const Tensors& in) { return Tensors{-in[0] * in[1] + in[0] / in[1] - in[1]}; }},
      {"numbers",
       [](const Tensors& in) {
         return Tensors{(2 * in[0] + 1) / 3 - (0.5 - in[0]) + 1.5 / in[0]};
       }},
      {"sin", One(Sin)},
      {"cos", One(Cos)},
      {"expm1", One(Expm1)},
      {"log1p", One(Log1p)},
      {"normal_cdf", One(NormalCdf)},
      {"pow", [](const Tensors& in) { return Tensors{Pow(in[0], in[1])}; }},
      {"pow_two", [](const Tensors& in) { return Tensors{Pow(in[0], 2)}; }},
      {"pow_three", [](const Tensors& in) { return Tensors{Pow(in[0], 3)}; }},
      {"pow_fraction", [](const Tensors& in) { return Tensors{Pow(in[0], -1.3)}; }},
      {"clamp", [](const Tensors& in) { return Tensors{Clamp(in[0], -0.5, 1)}; }},
      {"clamp_min", [](const Tensors& in) { return Tensors{Clamp(in[0], 0.25, kInfinity)}; }},
      {"where",
       [](const Tensors& in) {
         const Tensor positive = Compare(in[0], 0.0, Comparison::kGreater);
         return Tensors{Where(positive, in[0], -0.5), Where(positive, 2, in[0])};
       }},
      {"max",
       [](const Tensors& in) {
         return Tensors{Max(in[0], 1), ArgMax(in[0], 1)};
       }},
      {"min",
       [](const Tensors& in) {
         return Tensors{Min(in[0], 1, true), ArgMin(in[0], 1, true)};
       }},
      {"cumsum", [](const Tensors& in) { return Tensors{CumSum(in[0], 1)}; }},
      {"sort", [](const Tensors& in) { return Both(Sort(in[0], 1)); }},
      {"sort_descending",
       [](const Tensors& in) { return Both(Sort(in[0], 0, SortOrder::kDescending)); }},
      {"topk", [](const Tensors& in) { return Both(TopK(in[0], 2, 1)); }},
      {"stack",
       [](const Tensors& in) {
         return Tensors{Stack({in[0], in[1]}, 1)};
       }},
      {"chunk", [](const Tensors& in) { return Chunk(in[0], 3, 1); }},
      {"repeat",
       [](const Tensors& in) {
         return Tensors{Repeat(in[0], {2, 1, 3})};
       }},
      {"repeat_interleave",
       [](const Tensors& in) { return Tensors{RepeatInterleave(in[0], 3, 1)}; }},
      {"flip",
       [](const Tensors& in) {
         return Tensors{Flip(in[0], {0, 1})};
       }},
      {"roll", [](const Tensors& in) { return Tensors{Roll(in[0], -2, 1)}; }},
      {"pad", [](const Tensors& in) { return Tensors{Pad(in[0], 1, 2, 1, -3)}; }},
      {"one_hot", [](const Tensors& in) { return Tensors{OneHot(in[0], 5)}; }},
      {"einsum_matmul", Einsums("ij,jk->ik")},
      {"einsum_attention", Einsums("bhqd,bhkd->bhqk")},
      {"einsum_bilinear", Einsums("bi,oij,bj->bo")},
      {"einsum_ellipsis", Einsums("...i,oi->...o")},
      {"einsum_trace", Einsums("ii->")},
      {"einsum_outer", Einsums("i,j")},
      {"mse", Reductions([](auto& x, auto& t, auto r) { return MseLoss(x, t, {r}); })},
      {"l1", Reductions([](auto& x, auto& t, auto r) { return L1Loss(x, t, {r}); })},
      {"smooth_l1", Reductions([](auto& x, auto& t, auto r) {
         return SmoothL1Loss(x, t, {.reduction = r, .beta = 0.5});
       })},
      {"huber", Reductions([](auto& x, auto& t, auto r) {
         return HuberLoss(x, t, {.reduction = r, .delta = 1.5});
       })},
      {"bce",
       Reductions([](auto& x, auto& t, auto r) { return BceWithLogits(x, t, {.reduction = r}); })},
      {"bce_weights", Reductions([](auto& x, auto& t, auto r) {
         const Tensor weights = ColumnWeights(x);
         return BceWithLogits(x, t, {.reduction = r, .weight = weights, .pos_weight = weights});
       })},
      {"kl", Divergences(false)},
      {"kl_log_target", Divergences(true)},
      {"nll", Reductions([](auto& x, auto& t, auto r) {
         return NllLoss(x, t, {.reduction = r, .ignore_index = 2});
       })},
      {"nll_weights", Reductions([](auto& x, auto& t, auto r) {
         return NllLoss(x, t, {.reduction = r, .class_weights = ColumnWeights(x)});
       })},
      {"cross_entropy", Reductions([](auto& x, auto& t, auto r) {
         return CrossEntropy(x, t, {.reduction = r, .ignore_index = 2, .label_smoothing = 0.1});
       })},
      {"cosine", [](const Tensors& in) { return Tensors{CosineSimilarity(in[0], in[1], 1)}; }},
      {"cosine_embedding",
       [](const Tensors& in) {
         return Tensors{CosineEmbeddingLoss(in[0], in[1], in[2], {.margin = -0.3})};
       }},
      {"lstm", Recurrents<nn::Lstm>(2)},
      {"gru", Recurrents<nn::Gru>(1)},
      {"rnn_tanh", Recurrents<nn::Rnn>(1)},
      {"rnn_relu", Recurrents<nn::Rnn>(1, nn::Nonlinearity::kRelu)},
      {"conv1d", ConvolutionBy<Conv1d>(Conv1dOptions{.stride = 2, .padding = 1, .dilation = 2})},
      {"conv2d", ConvolutionBy<Conv2d>(Conv2dOptions{.padding = 1})},
      {"conv2d_strided", ConvolutionBy<Conv2d>(Conv2dOptions{.stride = {2, 3}, .padding = {1, 2}})},
      {"conv2d_dilated", ConvolutionBy<Conv2d>(Conv2dOptions{.dilation = {2, 1}, .groups = 2})},
      {"conv2d_depthwise",
       ConvolutionBy<Conv2d>(Conv2dOptions{.stride = 2, .padding = 1, .groups = 3})},
      {"conv_transpose2d", ConvolutionBy<ConvTranspose2d>(ConvTranspose2dOptions{
                               .stride = {2, 3}, .padding = 1, .output_padding = {1, 0}})},
      {"max_pool2d",
       [](const Tensors& in) {
         return Tensors{MaxPool2d(in[0], {.kernel = 3, .stride = Extent2d(2), .padding = 1})};
       }},
      {"max_pool2d_ceil",
       [](const Tensors& in) {
         return Tensors{
             MaxPool2d(in[0], {.kernel = 2, .stride = Extent2d(3, 2), .ceil_mode = true})};
       }},
      {"max_pool1d", [](const Tensors& in) { return Tensors{MaxPool1d(in[0], {.kernel = 3})}; }},
      {"avg_pool2d",
       [](const Tensors& in) {
         return Tensors{AvgPool2d(in[0], {.kernel = {3, 2}, .padding = 1, .ceil_mode = true})};
       }},
      {"avg_pool2d_inside",
       [](const Tensors& in) {
         return Tensors{AvgPool2d(in[0], {.kernel = 3,
                                          .stride = Extent2d(2),
                                          .padding = 1,
                                          .ceil_mode = true,
                                          .count_include_pad = false})};
       }},
      {"avg_pool1d", [](const Tensors& in) { return Tensors{AvgPool1d(in[0], {.kernel = 2})}; }},
      {"adaptive_avg_pool2d",
       [](const Tensors& in) {
         return Tensors{AdaptiveAvgPool2d(in[0], {3, 2})};
       }},
      {"interpolate_nearest",
       [](const Tensors& in) {
         return Tensors{Interpolate(in[0], {11, 4})};
       }},
      {"interpolate_bilinear", Bilinear(false)},
      {"interpolate_corners", Bilinear(true)},
      {"batch_norm",
       [](const Tensors& in) { return Tensors{BatchNorm(in[0], in[1], in[2], 1e-5).y}; }},
      {"group_norm",
       [](const Tensors& in) { return Tensors{GroupNorm(in[0], 2, in[1], in[2], 1e-5)}; }},
  };
  return operations;
}

// `prefix`0, `prefix`1, ... as far as they are there.
Tensors Numbered(const NamedTensors& tensors, const std::string& prefix) {
  Tensors found;
  for (int i = 0; tensors.count(Concat(prefix, i)) > 0; ++i) {
    found.push_back(tensors.at(Concat(prefix, i)));
  }
  return found;
}

// `name` is NAME@CASE.
Status Run(const std::string& name, const NamedTensors& in, NamedTensors& out) {
  const auto operation = Operations().find(name.substr(0, name.find('@')));
  if (operation == Operations().end()) return NotFound("no operation '", name, "'");
  const Tensors inputs = Numbered(in, name + "/x");
  for (const Tensor& x : inputs) {
    if (IsFloating(x.dtype())) RequireGrad(x);
  }
  const Tensors outputs = operation->second(inputs);
  for (size_t i = 0; i < outputs.size(); ++i) out[Concat(name, "/y", i)] = outputs[i];
  const Tensors seeds = Numbered(in, name + "/s");
  if (seeds.empty()) return {};
  // Seeds are those of the first outputs; what follows are indices.
  Backward(Tensors(outputs.begin(), outputs.begin() + static_cast<int64_t>(seeds.size())), seeds);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool leaf = IsFloating(inputs[i].dtype());
    if (leaf && Grad(inputs[i]).defined()) out[Concat(name, "/g", i)] = Grad(inputs[i]);
  }
  return {};
}

Status RunAll(const std::string& from, const std::string& to) {
  TESSERA_ASSIGN_OR_RETURN(const NamedTensors in, ReadTensors(from));
  NamedTensors out;
  for (const auto& [name, tensor] : in) {
    if (!name.ends_with("/x0")) continue;
    TESSERA_RETURN_IF_ERROR(Run(name.substr(0, name.size() - 3), in, out));
  }
  return WriteTensors(to, out);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "error: usage: operations IN.safetensors OUT.safetensors\n";
    return 2;
  }
  const tessera::Status status = tessera::RunAll(argv[1], argv[2]);
  if (!status.ok()) std::cerr << "error: " << tessera::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
