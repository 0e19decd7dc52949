// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "base/error.h"
#include "core/batch_keys.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"

namespace tessera::models {
namespace {

// In the names of both sides of a model with an encoder.
constexpr char kHiddenStates[] = "hidden_states.";

}  // namespace

void RunOptions::AddAuxiliary(std::string_view name, const Tensor& value, double weight) const {
  TESSERA_CHECK(auxiliaries != nullptr, "model", "AddAuxiliary(\"", name,
                "\") outside of Model::Run, which collects what blocks add");
  auxiliaries->Add(name, value, weight);
}

void RunOptions::Log(std::string_view name, const Tensor& value) const {
  AddAuxiliary(name, value.Detach(), 0);
}

void RunOptions::Log(std::string_view name, double value) const {
  Log(name, Tensor::Scalar(value));
}

std::pair<int, int> Model::block_range() const {
  const int end = build().end_block < 0 ? num_blocks() : build().end_block;
  return {build().first_block, end};
}

bool Model::HasBlock(int block) const {
  const auto [first, end] = block_range();
  return block >= first && block < end;
}

bool Model::Takes(const TensorKey& key) const {
  if (!inputs_.empty()) return inputs_.has(key.name());
  for (int block = 0; block < num_blocks(); ++block) {
    const BlockKeys keys = keys_of_block(block);
    if (keys.takes.has(key.name()) || keys.may_take.has(key.name())) return true;
  }
  return false;
}

PrefixSpan Model::prefix(int adapter) const {
  const auto found = prefixes_.find(adapter);
  return found == prefixes_.end() ? PrefixSpan() : found->second;
}

int64_t Model::positions_left(int adapter) const {
  const int64_t all = max_positions();
  return all == 0 ? 0 : all - prefix(adapter).positions;
}

Status Model::CheckCanRecompute(const std::string& name) const {
  if (num_blocks() > 2) return OkStatus();
  return InvalidArgument("checkpoint_activations: ", name,
                         " has no block between its first and its last, so there is nothing to "
                         "recompute");
}

void Model::set_checkpoint_activations(bool value) {
  const Status can = CheckCanRecompute("this model");
  TESSERA_CHECK(!value || can.ok(), "model", Message(can));
  checkpoint_activations_ = value;
}

Bundle Model::ShareOfSequences(const Bundle& rows, RunOptions* options) const {
  const Group& ranks = build().context_parallel;
  if (ranks == nullptr || ranks->size() == 1) return rows;
  TESSERA_CHECK(prefix(options->context.adapter).tokens == 0, "model",
                "the keys of a prefix adapter are not cut over context-parallel ranks");
  const bool learns = rows.has(keys::kTargets) || rows.has(keys::kLabels);
  TESSERA_CHECK(!learns || options->loss_reduction != LossReduction::kMean, "model",
                "a rank that has some of the tokens does not know the mean of all: ask for their "
                "sum (LossReduction::kSum)");
  // Every rank adds the model's own losses, which are of the whole rows.
  if (options->loss_targets > 0) options->loss_targets /= ranks->size();
  return CutSequences(rows, &options->context);
}

Bundle Model::CutSequences(Bundle /*rows*/, nn::ForwardContext* /*context*/) const {
  throw Error("model", "this model's sequences cannot be cut over context-parallel ranks");
}

bool WantsHiddenOnly(const Bundle& in, const RunOptions& options) {
  return !options.keep_logits && !in.has(keys::kLabels) && !in.has(keys::kTargets);
}

CrossEntropyOptions LossOptionsOf(const RunOptions& options) {
  return {.reduction = options.loss_reduction, .label_smoothing = options.label_smoothing};
}

nn::ForwardContext ContextFor(const Bundle& in, const RunOptions& options) {
  nn::ForwardContext context = options.context;
  context.sequence_length = in.at(keys::kPositionIds).size(-1);
  return context;
}

std::string HiddenStateName(int layer) { return Concat(kHiddenStates, layer); }

std::vector<HiddenState> Model::HiddenStatesOf(int block) const {
  if (!keys_of_block(block).gives.has(keys::kHidden.name())) return {};
  return {{.name = HiddenStateName(block), .key = keys::kHidden}};
}

namespace {

// Moves those that an earlier stage has sent out of its bundle.
Bundle TakeHiddenStates(Bundle* bundle) {
  Bundle states;
  Bundle others;
  for (const auto& [name, tensor] : bundle->entries()) {
    Bundle& to = name.find(kHiddenStates) == std::string::npos ? others : states;
    to.SetNamed(name, tensor);
  }
  *bundle = std::move(others);
  return states;
}

// Whole sequences, of what block `block` gave.
void CollectHiddenStates(const Model& model, int block, const Bundle& bundle,
                         const RunOptions& options, Bundle* states) {
  for (const HiddenState& state : model.HiddenStatesOf(block)) {
    if (!bundle.has(state.key)) continue;  // an encoder that has run already
    Tensor tensor = bundle.at(state.key);
    if (state.key.name() == keys::kHidden.name() && model.build().sequence_parallel) {
      nn::ForwardContext context = options.context;
      context.sequence_length = bundle.at(state.sequence).size(-1);
      tensor = WholeSequence(tensor, model.build(), context);
    }
    states->SetNamed(state.name, std::move(tensor));
  }
}

// A block, and what it adds of its own losses.
Bundle RunCollecting(const Model& model, int block, Bundle in, const RunOptions& options) {
  Auxiliaries found;
  RunOptions own = options;
  own.auxiliaries = &found;
  Bundle out = model.RunBlock(block, std::move(in), own);
  found.MergeInto(&out);
  return out;
}

// The region's inputs are the floating tensors that the block takes, which may have a gradient.
Bundle RecomputeBlock(const Model& model, int block, Bundle in, const RunOptions& options) {
  const BlockKeys keys = model.keys_of_block(block);
  std::vector<std::string> names;
  std::vector<Tensor> inputs;
  for (const auto& [name, tensor] : in.entries()) {
    const bool taken = keys.takes.has(name) || keys.may_take.has(name);
    if (!taken || !tensor.defined() || !IsFloating(tensor.dtype())) continue;
    names.push_back(name);
    inputs.push_back(tensor);
  }
  for (const std::string& name : names) in.SetNamed(name, Tensor());
  const auto run = [&model, block, options, names,
                    rest = std::move(in)](const std::vector<Tensor>& given) {
    Bundle bundle = rest;
    for (size_t i = 0; i < names.size(); ++i) bundle.SetNamed(names[i], given[i]);
    return RunCollecting(model, block, std::move(bundle), options);
  };
  return Recompute(run, inputs);
}

}  // namespace

Bundle Model::Run(const Bundle& inputs, const RunOptions& options) const {
  Bundle bundle = inputs;
  const auto [first, end] = block_range();
  // Datasets give it to whatever model there is.
  if (!inputs_.empty() && !inputs_.has(keys::kTokenMask.name())) bundle.erase(keys::kTokenMask);
  for (const auto& [name, tensor] : bundle.entries()) {
    TESSERA_CHECK(first > 0 || inputs_.empty() || inputs_.has(name), "model", "'", name,
                  "' is no input of this model; inputs are: ", inputs_.Text());
  }
  Bundle states;
  if (options.all_hidden_states) states = TakeHiddenStates(&bundle);
  Bundle auxiliaries = TakeAuxiliaries(&bundle);
  for (int block = first; block < end; ++block) {
    const bool recomputes = checkpoint_activations() && GradEnabled() && options.cache == nullptr &&
                            block > 0 && block + 1 < num_blocks();
    bundle = recomputes ? RecomputeBlock(*this, block, std::move(bundle), options)
                        : RunCollecting(*this, block, std::move(bundle), options);
    Auxiliaries::Merge(TakeAuxiliaries(&bundle), &auxiliaries);
    if (options.all_hidden_states) CollectHiddenStates(*this, block, bundle, options, &states);
  }
  for (const Bundle* more : {&states, &auxiliaries}) {
    for (const auto& [name, tensor] : more->entries()) bundle.SetNamed(name, tensor);
  }
  if (end == num_blocks()) FinishAuxiliaries(&bundle, options);
  const bool whole = first == 0 && end == num_blocks();
  const int missing = options.cache != nullptr && whole ? options.cache->MissingLayer() : -1;
  TESSERA_CHECK(missing < 0, "model", "layer ", missing,
                " of num_cache_layers() = ", num_cache_layers(),
                " keeps nothing in RunOptions::cache; a model without layers "
                "that do has num_cache_layers() of 0");
  return bundle;
}

void Model::SetDropout(double p) {
  VisitModules([p](nn::Module& m) { m.set_dropout(p); });
}

}  // namespace tessera::models
