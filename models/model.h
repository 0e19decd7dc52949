// SPDX-License-Identifier: Apache-2.0
// What every model family is to the trainer, the command line and a pipeline.
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildModel(config_json, build));
//   Bundle out = model->Run({{keys::kInputIds, ids}, {keys::kTargets, next}}, options);
//   Backward(out.at(keys::kLoss));
//
// A model is a sequence of blocks, each mapping a bundle of tensors to another (core/bundle.h): 0
// is the embedding, the last one the head. `Run` is their composition, so that a pipeline stage,
// which builds and runs some of them (BuildContext::first_block, end_block), needs no code of its
// own. Every block declares what it takes and gives (models/block_keys.h); BuildModel checks that
// they fit together, and `Run` refuses an input that no block takes.
//
// Generation (models/generation/generate.h) needs `logits` [B, T, V] of `input_ids`, and asks for
// the rest: positions, `logit_positions`, a cache.
//
// Keys, with shapes and meanings: core/batch_keys.h, models/model_keys.h and the families' own.
#ifndef TESSERA_MODELS_MODEL_H_
#define TESSERA_MODELS_MODEL_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/bundle.h"
#include "core/tensor.h"
#include "models/auxiliary.h"
#include "models/block_keys.h"
#include "models/model_keys.h"
#include "models/text_format.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/key_value_cache.h"
#include "nn/module.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace tessera::dist {
class Stage;
}  // namespace tessera::dist

namespace tessera::models {

using tessera::Bundle;

struct RunOptions {
  nn::ForwardContext context = {};
  LossReduction loss_reduction = LossReduction::kMean;
  // False where only the loss is wanted: the logits' memory is then reused for their gradient.
  // Without labels, where only `last_hidden_state` is wanted: no logits are computed.
  bool keep_logits = true;
  // `Run` gives the hidden state of every layer too, `hidden_states.0` (the embedding's) ...
  // `hidden_states.L`, each [B, T, C] and on the tape: Model::HiddenStatesOf. A pipeline's stages
  // pass on those of the stages before them.
  bool all_hidden_states = false;
  // Of GPT's and GLM's mean or summed loss, where logits are not kept and the vocabulary is not
  // split: so many tokens at a time, so that all logits are never there
  // (ops/cross_entropy/linear_cross_entropy.h). 0: all at once; -1: as serves the device best,
  // which is all at once on the CPU and about 1 GiB of logits at a time on a GPU.
  int64_t loss_chunk_tokens = -1;
  // Decoding: the inputs continue what the cache holds. See nn/key_value_cache.h.
  nn::KeyValueCache* cache = nullptr;
  // Of tokens and of single labels: the share of a target that is spread over all classes
  // (ops/cross_entropy/cross_entropy.h). A cloze's rows must then have all candidates.
  double label_smoothing = 0;
  // Of a classifier with single labels: [labels] float32, how much each class counts in the loss.
  Tensor class_weights = {};
  // Of a summed loss: what its step counts it for (targets), by which auxiliary losses are
  // multiplied; 0: the loss is without them; below 0: so it is, of any reduction, for whoever makes
  // another loss of the outputs and adds them to that (models/auxiliary.h).
  double loss_targets = 0;
  Auxiliaries* auxiliaries = nullptr;  // of the block that runs, by Model::Run

  // Adds weight * value to the loss, and reports value by name. Throws Error outside of Model::Run.
  void AddAuxiliary(std::string_view name, const Tensor& value, double weight) const;
  // Reports a number by name and changes no loss: it reaches the rows of metrics, the report and
  // TensorBoard on every layout, as the mean over a step's micro-batches, each with the weight of
  // its targets. Every pass logs the same names; what one logs under one name is added up.
  //
  //   options.Log("gate_mean", Mean(gate));
  //   options.Log("layers", 1);
  //
  // Throws Error as AddAuxiliary does. Of ranks that hold shares of a tensor, the first one's
  // number counts: log what all of them have.
  void Log(std::string_view name, const Tensor& value) const;
  void Log(std::string_view name, double value) const;
};

// A tensor of a block that `Run` gives by a name of its own.
struct HiddenState {
  std::string name;
  TensorKey key;
  // Whose last dimension is the length of the whole sequence, for `hidden`, which may be a share.
  TensorKey sequence = keys::kPositionIds;
};

// "hidden_states.3".
std::string HiddenStateName(int layer);

// What an adapter puts before the tokens of every row (models/hub/prefix_adapter.h).
struct PrefixSpan {
  int64_t tokens = 0;     // keys and values in each layer
  int64_t positions = 0;  // how many of the model's positions they take: tokens are behind them
};

// What a model with an encoder beside its decoder can do besides.
class EncoderDecoder {
 public:
  virtual ~EncoderDecoder() = default;
  // The token that the decoder begins with.
  virtual int64_t decoder_start() const = 0;
  // What the decoder reads of a source: `Run` then takes it with `decoder_input_ids`, in place of
  // `input_ids`. A model with some of the blocks does its part of that: those of the encoder's that
  // it has.
  virtual Bundle Encode(Bundle in, const RunOptions& options) const = 0;
};

class Model : public nn::Module {
 public:
  using nn::Module::Module;

  // Of the whole model, whichever blocks this one has.
  virtual int num_blocks() const = 0;
  // What a block of the whole model takes and gives.
  virtual BlockKeys keys_of_block(int block) const = 0;
  // One of this model's blocks. The result holds what later blocks need.
  virtual Bundle RunBlock(int block, Bundle in, const RunOptions& options) const = 0;
  // All blocks that this model has, in order. Where the first one is among them, throws Error for
  // an input that no block takes, and names those that are; where all are, also for a layer that
  // keeps nothing in the cache it is given.
  virtual Bundle Run(const Bundle& inputs, const RunOptions& options) const;

  // What a block has of all hidden states (RunOptions::all_hidden_states), as Hugging Face's
  // `output_hidden_states=True` counts them; of one name that of the later block. By default
  // `hidden` of every block that gives it, by the block's number, so that the last one is what the
  // last layer gives; a family whose last one is behind the final norm says so of its head.
  virtual std::vector<HiddenState> HiddenStatesOf(int block) const;

  // The configuration as in Hugging Face's config.json, unknown keys included.
  virtual const nlohmann::json& config() const = 0;
  // Greatest number of positions (0: unlimited), and the size of the vocabulary.
  virtual int64_t max_positions() const = 0;
  virtual int64_t vocab_size() const = 0;
  // Numbers in a token's (or a patch's) `last_hidden_state`; 0 for a model that gives none.
  virtual int64_t hidden_size() const { return 0; }
  // Layers that keep keys and values while decoding (RunOptions::cache); with 0 a model that
  // generates (models/family.h) reads the whole text again for every token.
  virtual int num_cache_layers() const { return 0; }
  // Equal for lengths of texts (a prefix's tokens included) that are computed alike. Where rotary
  // frequencies follow the length, texts of others share neither a pass nor keys.
  virtual int64_t length_kind(int64_t /*tokens*/) const { return 0; }
  // What generation does where a new token changes a text's length_kind. True: it reads the whole
  // text again, so that all of its keys are of one kind. False: keys in the cache stay as they are.
  virtual bool rereads_at_length_kind() const { return false; }
  // How its texts look, where they are more than tokens in a row; else null.
  virtual std::shared_ptr<const TextFormat> text_format() const { return nullptr; }
  // Its encoder's side, where a decoder is beside an encoder; else nullptr.
  virtual const EncoderDecoder* encoder_decoder() const { return nullptr; }
  // This rank's stage, where blocks lie on the ranks of a pipeline
  // (dist/pipeline/pipelined_model.h); nullptr: all blocks are here.
  virtual const dist::Stage* stage() const { return nullptr; }
  // Sets every dropout probability of the model.
  virtual void SetDropout(double p);

  // Context parallelism (nn::BuildContext::context_parallel). What this rank's `Run` is given of a
  // batch of whole rows, which all ranks of the group have. The options then say how long the rows
  // were. The loss and the logits are of this rank's tokens. Without such a group it is the batch
  // as it is. Throws Error where the model or the batch cannot be cut, and for a mean loss.
  Bundle ShareOfSequences(const Bundle& rows, RunOptions* options) const;
  // Whether it is one that can be cut: a model whose tokens read one another in attention alone.
  virtual bool cuts_sequences() const { return false; }
  // What ShareOfSequences asks of such a model; `context` gets the lengths of what is cut.
  virtual Bundle CutSequences(Bundle rows, nn::ForwardContext* context) const;

  // Before rows, where adapter number `adapter` counts (nn::ForwardContext); all zeros: nothing.
  virtual PrefixSpan prefix(int adapter) const;
  virtual void set_prefix(int adapter, const PrefixSpan& span) { prefixes_[adapter] = span; }
  // What max_positions() leaves to a row's tokens.
  int64_t positions_left(int adapter = 0) const;

  // `Run` keeps what blocks between the first and the last are given, and computes their
  // activations again in the backward pass (autograd/recompute.h). Throws Error where
  // CheckCanRecompute fails.
  virtual void set_checkpoint_activations(bool value);
  // InvalidArgument for a model that has no such block; `name` is what the message calls it.
  Status CheckCanRecompute(const std::string& name) const;
  bool checkpoint_activations() const { return checkpoint_activations_; }

  // The blocks [first, second) that this model has.
  std::pair<int, int> block_range() const;
  bool HasBlock(int block) const;

  // What the blocks take from outside; empty before BuildModel has found it.
  const KeyNames& inputs() const { return inputs_; }
  void set_inputs(KeyNames inputs) { inputs_ = std::move(inputs); }
  // Whether one of the blocks does something with such an input.
  bool Takes(const TensorKey& key) const;

 private:
  KeyNames inputs_;
  std::map<int, PrefixSpan> prefixes_;  // by adapter
  bool checkpoint_activations_ = false;
};

// Whether nothing but `last_hidden_state` is wanted (RunOptions::keep_logits).
bool WantsHiddenOnly(const Bundle& in, const RunOptions& options);

// How a head that gives a loss reduces and smooths it.
CrossEntropyOptions LossOptionsOf(const RunOptions& options);

// The length of the sequence travels with the bundle, as that of `position_ids`, since under
// sequence parallelism the hidden states show a share of it only.
nn::ForwardContext ContextFor(const Bundle& in, const RunOptions& options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_MODEL_H_
