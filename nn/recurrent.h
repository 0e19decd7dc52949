// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, one above the other: nn::Lstm, nn::Gru and nn::Rnn.
//
//   Lstm lstm({.input_size = C, .hidden_size = H, .num_layers = 2}, Child("lstm"));
//   const RecurrentResult y = lstm.Forward(x_BTC, context, {.lengths = lengths_B});
//   y.output;   // [B, T, H]: the uppermost layer's states
//   y.hidden;   // [2, B, H]: each layer's last one; y.cell likewise
//
// Sequences lie batch first, [B, T, C]. Layer l is `weight_ih_l<l>`, `weight_hh_l<l>`,
// `bias_ih_l<l>`, `bias_hh_l<l>`, with `_reverse` behind it for the other direction, in PyTorch's
// order of gates, uniform in +-1/sqrt(hidden_size) at first: a state of PyTorch's loads. The cells'
// formulas are those of ops/recurrent/recurrent.h.
//
// Lengths take the place of packed sequences: what is behind a sequence's length does not
// count (but must be finite), its outputs are zeros, and `hidden` is the state at the sequence's
// own end.
//
// A library of its own, //nn:recurrent. Every rank holds the whole layer. Under sequence
// parallelism a rank has a share of the sequence only, which throws Error.
#ifndef TESSERA_NN_RECURRENT_H_
#define TESSERA_NN_RECURRENT_H_

#include <memory>
#include <vector>

#include "nn/dropout.h"
#include "nn/module.h"
#include "nn/module_list.h"
#include "ops/recurrent/recurrent.h"

namespace tessera::nn {

struct RecurrentConfig {
  int64_t input_size = 0;
  int64_t hidden_size = 0;
  int num_layers = 1;
  bool bias = true;
  bool bidirectional = false;  // outputs and inputs of the next layer are 2 hidden_size wide
  double dropout = 0.0;        // of what goes from layer to layer
};

// What Forward is given beside its input; what is undefined is zeros, or the whole sequence.
struct RecurrentStart {
  Tensor lengths = {};  // int64 [B]
  Tensor hidden = {};   // [layers * directions, B, hidden_size]
  Tensor cell = {};     // likewise, of Lstm
};

struct RecurrentResult {
  Tensor output;  // [B, T, directions * hidden_size]
  Tensor hidden;  // [layers * directions, B, hidden_size], each layer's directions together
  Tensor cell;    // likewise, of Lstm, else undefined; float32 in half precision

  std::vector<Tensor> tensors() const;
};

// What Lstm, Gru and Rnn have in common: layers, directions, sequences of their own lengths.
class RecurrentLayers : public Module {
 public:
  RecurrentResult Forward(const Tensor& x, const ForwardContext& context = {},
                          const RecurrentStart& start = {}) const;

 protected:
  RecurrentLayers(RecurrentCell cell, const RecurrentConfig& config, const Scope& scope);

 private:
  // One layer in one direction.
  struct Weights {
    Parameter* input;
    Parameter* hidden;
    Parameter* input_bias;  // nullptr: none
    Parameter* hidden_bias;
  };
  Weights AddWeights(int layer, bool reverse);
  RecurrentStates RunLayer(const Weights& weights, const Tensor& x, const RecurrentStart& start,
                           size_t index, bool reverse) const;
  int directions() const { return config_.bidirectional ? 2 : 1; }

  const RecurrentCell cell_;
  const RecurrentConfig config_;
  std::vector<Weights> weights_;  // by layer, then direction
  ModuleList<Dropout> dropouts_{Child("dropouts")};
};

class Lstm : public RecurrentLayers {
 public:
  Lstm(const RecurrentConfig& config, const Scope& scope)
      : RecurrentLayers(RecurrentCell::kLstm, config, scope) {}
  std::string_view kind() const override { return "Lstm"; }
};

class Gru : public RecurrentLayers {
 public:
  Gru(const RecurrentConfig& config, const Scope& scope)
      : RecurrentLayers(RecurrentCell::kGru, config, scope) {}
  std::string_view kind() const override { return "Gru"; }
};

// Of an Rnn.
enum class Nonlinearity { kTanh, kRelu };

class Rnn : public RecurrentLayers {
 public:
  Rnn(const RecurrentConfig& config, const Scope& scope)
      : Rnn(config, Nonlinearity::kTanh, scope) {}
  Rnn(const RecurrentConfig& config, Nonlinearity nonlinearity, const Scope& scope)
      : RecurrentLayers(
            nonlinearity == Nonlinearity::kTanh ? RecurrentCell::kTanh : RecurrentCell::kRelu,
            config, scope) {}
  std::string_view kind() const override { return "Rnn"; }
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_RECURRENT_H_
