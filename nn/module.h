// SPDX-License-Identifier: Apache-2.0
// The base of every layer and model: a tree of named parameters.
//
//   class Mlp : public Module {
//    public:
//     Mlp(const MlpConfig& config, const Scope& scope)
//         : Module(scope),
//           c_fc_({...}, Child("c_fc")),
//           c_proj_({...}, Child("c_proj")) {}
//     Tensor Forward(const Tensor& x_BTC) const {
//       return Call(x_BTC, [&] { return c_proj_.Forward(GeluTanh(c_fc_.Forward(x_BTC))); });
//     }
//    ...
//   };
//
// A layer is built from (config, scope). The scope's path is the prefix of its parameters' names,
// which are those of the Hugging Face checkpoint (`transformer.h.0.mlp.c_fc.weight`). Each
// `Forward` is typed and passes through `Call`, which fires the hooks. One visitor over parameters
// drives saving, loading, optimizing, sharding and counting. Modules stay where they are built:
// they are neither copied nor moved. `Forward` changes nothing in them, so that many threads may
// run one model at once; what a pass is told is in its ForwardContext and in the thread's execution
// context (core/execution_context.h).
//
// Two children or parameters of one name, and parameters with a size of zero, throw Error where
// they are made.
#ifndef TESSERA_NN_MODULE_H_
#define TESSERA_NN_MODULE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/placement.h"
#include "core/profiler.h"
#include "core/tensor.h"
#include "ops/collective/collective.h"
#include "ops/collective/sum_tree.h"

namespace tessera {
enum class LinearLayout;  // ops/matmul/matmul.h
}  // namespace tessera

namespace tessera::nn {

class Module;
class SelfAttention;
class WeightForm;
struct Routing;  // nn/router.h

enum class VocabularyUse { kNone, kTable, kHead };

// How a parameter begins. Values are a function of (seed, parameter name, global index): every
// layout gets its part of the same numbers.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  double scale = 0.0;     // kNormal: the standard deviation; kUniform: the bound
  int64_t zero_row = -1;  // this row (of the global parameter) is zeros: a table's padding
  double cutoff = 0.0;    // kNormal: no number is beyond so many standard deviations; 0: any is

  static Init Zeros() { return {}; }
  static Init Ones() { return {Kind::kOnes, 0.0}; }
  static Init Normal(double stddev, int64_t zero_row = -1) {
    return {Kind::kNormal, stddev, zero_row};
  }
  static Init TruncatedNormal(double stddev, double cutoff) {
    return {Kind::kNormal, stddev, -1, cutoff};
  }
  // In [-bound, bound).
  static Init Uniform(double bound) { return {Kind::kUniform, bound}; }
};

// A weight of a module: this rank's part, and what is known of the whole.
struct Parameter {
  std::string name;     // the full path, as in the checkpoint
  Tensor tensor;        // a leaf of the tape (unless frozen), this rank's part
  Placement placement;  // which part of the global parameter that is
  Group part_group;     // the ranks that hold its parts; nullptr: this one has all of it
  Init init;
  // Shares its storage with another parameter, but collects a gradient of its own; the optimizer
  // adds the two up (GPT-2's lm_head.weight is transformer.wte.weight).
  Parameter* tied_to = nullptr;
  // Ranks that hold the same values but see only a part of the gradient, which must be summed over
  // them: norms under sequence parallelism. nullptr: none.
  Group gradient_group;
  // In what form layers multiply by it (nn/weight.h); nullptr: dense, as `tensor` has it.
  std::shared_ptr<const WeightForm> form;
  // The expert-parallel ranks, of which one has this parameter; nullptr: each has it.
  Group expert_group;
  // Another rank of expert_group has it: it has no elements here, and does not train.
  bool elsewhere = false;
  // One leaf for each of the ranks 1, 2, ... of expert_group (`tensor` is that of rank 0). They
  // share one storage, and a leaf collects the gradient of that rank's tokens. Sums are then taken
  // as they are without expert parallelism (BuildContext::deterministic).
  std::vector<Tensor> by_source = {};
  // In which order a layer sums over features of it that are cut over ranks. Empty: as they are on
  // each rank, whose terms are then added. Forms may not know of it (WeightForm::sums_in_trees).
  LinearTrees trees = {};
  // An embedding or a head: its rows stand for tokens, positions or classes, not for features.
  bool table = false;
  // False: it never trains (running statistics), and Freeze does not change that.
  bool can_train = true;
};

// Gives a parameter (this rank's part, whatever it holds) its first numbers; nothing on meta.
void InitialiseParameter(const Parameter& p, uint64_t seed);

// The leaf that a layer multiplies by. Of an expert with several it is that of the rank whose
// tokens are being computed, ExecutionContext::token_source.
const Tensor& LeafOf(const Parameter& p);

struct BuildContext;
// Makes a parameter one that trains. Throws Error where its bytes are a file's.
void LetTrain(const Parameter& p, const BuildContext& build);

// What all layers of a model are built with.
struct BuildContext {
  DType dtype = DType::kFloat32;
  Device device = Device::Cpu();
  uint64_t seed = 0;
  // False leaves parameters uninitialised, for weights that are about to be loaded.
  bool initialise = true;
  Group tensor_parallel = nullptr;  // nullptr: one rank
  // Norms, dropout and residuals work on this rank's share of the sequence (Korthikanti et al.).
  bool sequence_parallel = false;
  // Ranks that share out the tokens of every sequence: they see all rows of a batch, and what they
  // are given with ForwardContext::cut_length are their tokens of these
  // (ops/collective/sequence_runs.h). nullptr: one rank.
  Group context_parallel = nullptr;
  // Each rank has a share of a layer's experts, and gets the tokens that go to them (Lepikhin et
  // al. 2020, "GShard"); nullptr: one rank.
  Group expert_parallel = nullptr;
  // Sums are taken in an order that does not depend on the layout, at some cost: an expert's
  // parameters have a gradient for the tokens of each rank (Parameter::by_source), and sums over
  // features that tensor_parallel cuts go by a tree (Parameter::trees).
  bool deterministic = false;
  // Within an expert: Parameter::expert_group and elsewhere.
  Group expert_group = nullptr;
  bool elsewhere = false;
  // The blocks of a model to build: a pipeline stage. end < 0 means all from `first_block` on.
  int first_block = 0;
  int end_block = -1;
  // What gradients of parameters are collected in; unset: float32 for half precision.
  std::optional<DType> grad_dtype = std::nullopt;
  // The bytes that a parameter (whose tensor is not made yet) has already, all of them: those of a
  // mapped file. nullptr, or unset: it gets new ones. Where these bytes are read-only, the
  // parameter does not train, nor can it be made to.
  std::function<std::shared_ptr<Storage>(const Parameter&)> storage_of = nullptr;
  // The form of a parameter (whose tensor is not made yet) that is not dense: it gets no memory of
  // its own, and does not train. nullptr, or unset: it is dense.
  std::function<std::shared_ptr<const WeightForm>(const Parameter&)> form_of = nullptr;
  // Called with each dense parameter as it is made, before the next one is: ZeRO-3 shards it here.
  std::function<void(Parameter&)> on_parameter = nullptr;
  // Runs `write`, which gives a parameter the values read from files: ZeRO-3 brings it memory
  // before and cuts it again after. Unset: `write` is just run.
  std::function<void(Parameter&, const std::function<void()>& write)> around_loading = nullptr;
};

// Where in the model a layer stands.
struct Scope {
  std::string path;
  Module* parent = nullptr;
  std::shared_ptr<const BuildContext> build;

  static Scope Root(const BuildContext& build) {
    return {"", nullptr, std::make_shared<const BuildContext>(build)};
  }
};

// Fire around every Forward of a module. Backward hooks fire when the gradient of the module's
// result arrives, and when that of its (first) input is whole; a module whose input is no result of
// the tape has no post-backward.
struct ModuleHooks {
  std::function<void(const Module&)> pre_forward = nullptr;
  std::function<void(const Module&)> post_forward = nullptr;
  std::function<void(const Module&)> pre_backward = nullptr;
  std::function<void(const Module&)> post_backward = nullptr;
};

class Module {
 public:
  explicit Module(const Scope& scope);
  // Its parent forgets it. A child that takes its place is made afterwards: `head.reset(); head =
  // std::make_unique<...>(..., Child("head"))`; optimizers hold parameters and are made again.
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return *path_; }
  // What a configuration calls layers like this one ("TransformerBlock"); "": they have no name.
  virtual std::string_view kind() const { return ""; }
  // How `weight` lies, of a linear layer or a head over a vocabulary; nullopt: this is neither.
  virtual std::optional<LinearLayout> linear_layout() const { return std::nullopt; }
  // How a low-rank term stands beside `weight` (nn/low_rank.h): as this, where rows of a table are
  // the inputs of a layer that looks them up; nullopt: it takes none.
  virtual std::optional<LinearLayout> term_layout() const { return linear_layout(); }
  // Whether rows of its parameters are looked up: nothing is multiplied by them, and the backward
  // pass does not read them.
  virtual bool looks_up() const { return false; }
  // Whether `weight` is a table of the vocabulary: its rows are looked up, or give the logits.
  virtual VocabularyUse vocabulary_use() const { return VocabularyUse::kNone; }
  // Whether its Forward reads numbers back from the device, and does what they say: such a step
  // cannot be captured (train/engine/captured_step.h).
  virtual bool reads_device() const { return false; }
  // Of a layer that drops out.
  virtual void set_dropout(double /*p*/) {}
  // The layer itself, where it is self-attention, which an adapter may give keys (nn/prefix.h).
  virtual SelfAttention* self_attention() { return nullptr; }
  const BuildContext& build() const { return *build_; }
  const std::vector<Module*>& children() const { return children_; }

  // This module, then its descendants, in order of construction.
  void VisitModules(const std::function<void(Module&)>& visit);
  void VisitParameters(const std::function<void(Parameter&)>& visit);
  // Without those of its descendants.
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  std::vector<Parameter*> Parameters();
  // nullptr when there is none of that (full) name.
  Parameter* FindParameter(std::string_view name);
  // Elements of the global parameters, each tied one once; of those that train only if asked.
  int64_t ParameterCount(bool trainable_only = false);

  // Casts or moves every parameter; gradients are dropped. Optimizers are made afterwards.
  void To(DType dtype);
  void To(const Device& device);
  // Parameters whose name contains `pattern` stop (or start again) to train. Returns how many.
  int Freeze(std::string_view pattern = "", bool frozen = true);
  void ZeroGrad();

  // Name to tensor; the tensors are the parameters' own, off the tape. Tied ones appear once.
  std::map<std::string, Tensor> StateDict();
  // Copies (and casts) tensors of local shape in. Names that are missing or unknown, and shapes
  // that differ, are reported by name; nothing is changed then.
  Status LoadStateDict(const std::map<std::string, Tensor>& state);

  // A table of parameters: name, shape, dtype, count.
  std::string Summary();

  // Returns an id for RemoveHooks.
  int AddHooks(ModuleHooks hooks);
  void RemoveHooks(int id);
  // Of this module or one below.
  bool has_hooks() const;

 protected:
  // An empty name gives a child whose parameters are called as this module's own.
  Scope Child(const std::string& name);
  // `name` is relative ("weight"). The reference stays valid as long as the module.
  Parameter& AddParameter(const std::string& name, const Placement& placement, const Init& init);
  // Makes a module that was built elsewhere a child of this one, under its own path, as long as
  // both live.
  void Adopt(Module& child);
  // A parameter that shares `source`'s storage.
  Parameter& AddTiedParameter(const std::string& name, Parameter& source);

  // Runs `body` (a Forward's) between the hooks. `input` is what post-backward waits for. The
  // result is a Tensor, or a type with `std::vector<Tensor> tensors() const`.
  template <typename Body>
  auto Call(const Tensor& input, Body body) const {
    const ExecutionModeScope<&ExecutionContext::module_path> in_module(&path_);
    const ProfileSpan span("module", *path_);
    Fire(&ModuleHooks::pre_forward);
    WatchInput(input);
    auto result = body();
    WatchOutputs(result);
    Fire(&ModuleHooks::post_forward);
    return result;
  }

 private:
  bool HasOwnHooks() const { return hooks_ != nullptr && !hooks_->empty(); }
  void Fire(std::function<void(const Module&)> ModuleHooks::*hook) const;
  void WatchInput(const Tensor& input) const;
  void WatchOutput(const Tensor& output) const;
  void WatchOutputs(const Tensor& output) const { WatchOutput(output); }
  template <typename Result>
  void WatchOutputs(const Result& result) const {
    for (const Tensor& t : result.tensors()) WatchOutput(t);
  }
  void TakeName(const std::string& path);
  Parameter& KeepParameter(std::unique_ptr<Parameter> parameter);
  void Convert(const std::function<Tensor(const Tensor&)>& convert);
  void MakeSources(Parameter* p) const;

  const std::shared_ptr<const std::string> path_;  // nodes of the tape that outlive it share it
  const std::shared_ptr<const BuildContext> build_;
  // Full names of parameters and children, shared with children that have no name of their own.
  const std::shared_ptr<std::set<std::string>> names_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  // nullptr: there were none. The tape, which may outlive this module, watches it.
  std::shared_ptr<std::map<int, ModuleHooks>> hooks_;
  int next_hook_ = 0;
};

// The path of the module whose Forward runs on this thread, "" outside of any: for messages.
std::string CurrentModulePath();

// What a forward pass is told beside its inputs: whether it is one of training, and the keys of
// random bits.
struct ForwardContext {
  bool training = false;  // dropout and other noise are active
  uint64_t seed = 0;
  uint64_t step = 0;         // optimizer step, from 1
  uint64_t micro_batch = 0;  // index over accumulation and data-parallel ranks
  // Length of the sequence of which the layers see a share under sequence parallelism: all that
  // this rank's tensor-parallel group has.
  int64_t sequence_length = 0;
  // Under context parallelism the length of the whole sequence, which is cut over ranks, and that
  // of the source that its decoder looks at; 0: nothing is cut, this rank has whole sequences.
  int64_t cut_length = 0;
  int64_t cut_source_length = 0;
  // NEFTune (nn/embedding.h); 0: no noise.
  double neftune_noise_alpha = 0;
  // Which of the adapters that are attached to the model counts, from 0; kNoAdapter: none, the
  // model is the one that it is on.
  int adapter = 0;
  static constexpr int kNoAdapter = -1;
  // Mixtures of experts leave here where their tokens go, in the order of the layers; nullptr: it
  // is not asked for.
  std::vector<Routing>* routings = nullptr;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_MODULE_H_
