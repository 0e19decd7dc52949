// What every model family is to the trainer, the command line and a pipeline.
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildModel(config_json, build));
//   Bundle out = model->Run({{"input_ids", ids}, {"targets", next}}, options);
//   Backward(out.at("loss"));
//
// A model is a sequence of blocks, each mapping a named bundle of tensors to another: 0 is the
// embedding, the last one the head. `Run` is their composition, so that a pipeline stage, which
// builds and runs some of them (BuildContext::first_block, end_block), needs no code of its own.
//
// Names that begin with `local.` are a stage's own: what it computed for several of its blocks and
// the next stage computes again instead of receiving it.
//
// Inputs, as far as a family knows them: `input_ids` [B, T] int64, `attention_mask` [B, T] (0 is
// padding, on either side or in between), `position_ids` [B, T], `document_ids` [B, T] int32
// (tokens see their own document only), `labels` [B, T] int64 (shifted by the model, -100 ignored:
// Hugging Face's meaning) or `targets` [B, T] (already aligned with the logits), and the families'
// own. Outputs: `loss` (with labels or targets), `logits`, `last_hidden_state`, ...
#ifndef TESSERA_MODELS_MODEL_H_
#define TESSERA_MODELS_MODEL_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "nlohmann/json.hpp"
#include "nn/key_value_cache.h"
#include "nn/module.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace tessera::models {

// Tensors by name, in order of insertion.
class Bundle {
 public:
  Bundle() = default;
  Bundle(std::initializer_list<std::pair<std::string, Tensor>> entries) : entries_(entries) {}

  bool has(std::string_view name) const { return Find(name) != nullptr; }
  // Throws Error when there is none of that name.
  const Tensor& at(std::string_view name) const;
  // Undefined when there is none.
  Tensor get(std::string_view name) const;
  void set(const std::string& name, Tensor t);
  void erase(std::string_view name);
  const std::vector<std::pair<std::string, Tensor>>& entries() const { return entries_; }

 private:
  const Tensor* Find(std::string_view name) const;
  std::vector<std::pair<std::string, Tensor>> entries_;
};

// What a decoder is told of a text beside its tokens.
struct TextLayout {
  int64_t prefix_length = 0;                    // so many tokens at the front see one another
  std::vector<std::vector<int64_t>> positions;  // of every token, by coordinate
};

struct RunOptions {
  nn::ForwardContext context = {};
  LossReduction loss_reduction = LossReduction::kMean;
  // False where only the loss is wanted: the logits' memory is then reused for their gradient.
  bool keep_logits = true;
  // Of GPT's and GLM's mean or summed loss, where logits are not kept and the vocabulary is not
  // split: so many tokens at a time, so that all logits are never there
  // (ops/cross_entropy/linear_cross_entropy.h). 0: all at once; -1: as serves the device best,
  // which is all at once on the CPU and about 1 GiB of logits at a time on a GPU.
  int64_t loss_chunk_tokens = -1;
  // Decoding: the inputs continue what the cache holds. See nn/key_value_cache.h.
  nn::KeyValueCache* cache = nullptr;
  // Of a classifier with single labels: [labels] float32, how much each class counts in the loss.
  Tensor class_weights = {};
};

class Model : public nn::Module {
 public:
  using nn::Module::Module;

  // Of the whole model, whichever blocks this one has.
  virtual int num_blocks() const = 0;
  // One of this model's blocks. The result holds what later blocks need.
  virtual Bundle RunBlock(int block, Bundle in, const RunOptions& options) = 0;
  // All blocks that this model has, in order.
  virtual Bundle Run(const Bundle& inputs, const RunOptions& options);

  // The configuration as in Hugging Face's config.json, unknown keys included.
  virtual const nlohmann::json& config() const = 0;
  // Greatest number of positions (0: unlimited), and the size of the vocabulary.
  virtual int64_t max_positions() const = 0;
  virtual int64_t vocab_size() const = 0;
  // Layers that keep keys and values while decoding; 0 for a model that does not generate.
  virtual int num_cache_layers() const { return 0; }
  // The token that a decoder beside an encoder begins with; none for models without encoder.
  virtual std::optional<int64_t> decoder_start() const { return std::nullopt; }
  // What generation begins with for a prompt: families whose texts need some tokens add them.
  // InvalidArgument for a prompt that cannot be continued.
  virtual absl::StatusOr<std::vector<int64_t>> PreparePrompt(std::vector<int64_t> prompt) const {
    return prompt;
  }
  // Of a text that begins with a prepared prompt; decoding then passes `position_ids` [B, N, T]
  // (all N coordinates) and `prefix_length` [B] int32. nullopt: positions count from 0, and tokens
  // see those before them.
  virtual std::optional<TextLayout> LayoutOf(const std::vector<int64_t>& /*text*/) const {
    return std::nullopt;
  }
  // What the decoder reads of a source: `Run` then takes it with `decoder_input_ids`, in place of
  // `input_ids`. A model with some of the blocks does its part of that: those of the encoder's that
  // it has. Throws Error for models without encoder.
  virtual Bundle Encode(Bundle in, const RunOptions& options);
  // Sets every dropout probability of the model.
  virtual void SetDropout(double p);

  // Recompute each block's activations in the backward pass (autograd/recompute.h).
  virtual void set_checkpoint_activations(bool value) { checkpoint_activations_ = value; }
  bool checkpoint_activations() const { return checkpoint_activations_; }

  // The blocks [first, second) that this model has.
  std::pair<int, int> block_range() const;
  bool HasBlock(int block) const;

 private:
  bool checkpoint_activations_ = false;
};

// The length of the sequence travels with the bundle, as that of `position_ids`, since under
// sequence parallelism the hidden states show a share of it only.
nn::ForwardContext ContextFor(const Bundle& in, const RunOptions& options);

// A model family: how it is recognised, built and listed. One registration per family.
struct Preset {
  std::string name;
  std::string tokenizer;  // what `tessera train` takes when none is given: "" or "byte"
  nlohmann::json config;
};

struct Family {
  std::string model_type;  // config.json's "model_type"
  std::vector<Preset> presets;
  absl::StatusOr<std::unique_ptr<Model>> (*build)(const nlohmann::json& config,
                                                  const nn::BuildContext& context);
  // Names the Hub's files use for a parameter of ours, tried in order after the name itself.
  std::vector<std::string> (*other_names)(const std::string& parameter);
  // Entries of the Hub's files that are no parameters (buffers) and are passed over.
  bool (*ignored_entry)(const std::string& name);
  // What `Run` understands from outside (the `forward` command), by Hugging Face's names.
  std::vector<std::string> inputs;
  // Whether those fit the model; `source` begins the message. nullptr: models/input_check.h's
  // CheckTextInputs.
  absl::Status (*check_inputs)(const std::string& source, const Model& model,
                               Bundle* inputs) = nullptr;
  // Whether an entry of the Hub's files, or a parameter, belongs to a head rather than to what
  // heads stand on. Entries of heads that a model does not have are passed over; a head that is
  // missing, or of another shape, may be initialised afresh when that is asked for.
  bool (*is_head)(const std::string& name) = nullptr;
};

const std::vector<const Family*>& Families();
const Preset* FindPreset(std::string_view name);
const Family* FindFamily(std::string_view model_type);

// Builds the model that a config.json describes. Errors name the key.
absl::StatusOr<std::unique_ptr<Model>> BuildModel(const nlohmann::json& config,
                                                  const nn::BuildContext& context);

struct FamilyRegistration {
  explicit FamilyRegistration(const Family* family);
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_MODEL_H_
