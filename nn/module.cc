// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/random.h"

namespace tessera::nn {
namespace {

// Nothing of a global parameter.
Placement NoPart(const Shape& global) {
  Shape none = global;
  for (int d = 0; d < none.ndim(); ++d) none[d] = 0;
  return Placement(global, none, {});
}

// On the bytes that are there, or on new ones, initialised as the build says.
void MakeTensor(const BuildContext& build, Parameter* p) {
  const Shape& shape = p->placement.local_shape();
  if (p->elsewhere) {
    p->tensor = Empty(shape, build.dtype, build.device);
    return;
  }
  if (build.form_of) p->form = build.form_of(*p);
  if (p->form != nullptr) {
    p->can_train = false;
    p->tensor = Empty(shape, build.dtype, Device::Meta(build.device.type));
    return;
  }
  if (build.storage_of) {
    if (auto storage = build.storage_of(*p)) {
      p->tensor = Tensor(std::move(storage), shape, ContiguousStrides(shape), 0, build.dtype);
      return;
    }
  }
  p->tensor = Empty(shape, build.dtype, build.device);
  if (build.initialise) InitialiseParameter(*p, build.seed);
}

}  // namespace

const Tensor& LeafOf(const Parameter& p) {
  const int source = ExecutionContext::Current().token_source;
  const bool own = source == 0 || p.by_source.empty() || !RequiresGrad(p.tensor);
  return own ? p.tensor : p.by_source.at(static_cast<size_t>(source) - 1);
}

// In half precision the gradient's dtype is the build's to say.
void LetTrain(const Parameter& p, const BuildContext& build) {
  const auto require = [&](const Tensor& leaf) {
    const DType dtype = leaf.dtype();
    if (build.grad_dtype && (dtype == DType::kBFloat16 || dtype == DType::kFloat16)) {
      RequireGrad(leaf, *build.grad_dtype);
    } else {
      RequireGrad(leaf);
    }
  };
  require(p.tensor);
  for (const Tensor& leaf : p.by_source) require(leaf);
}

namespace {

// Numbers beyond the cutoff are drawn again, from a stream of each round, until none is.
void RedrawBeyond(const Parameter& p, uint64_t seed, const GlobalBox& box, const Tensor& values) {
  const auto most = static_cast<float>(p.init.cutoff * p.init.scale);
  float* const data = values.data<float>();
  const auto beyond = [&](int64_t i) { return std::abs(data[i]) > most; };
  const Tensor again = Empty(values.shape());
  for (int round = 1;; ++round) {
    int64_t first = 0;
    while (first < values.numel() && !beyond(first)) ++first;
    if (first == values.numel()) return;
    FillNormalBox(again.data<float>(), box, InitialisationKey(seed, Concat(p.name, "#", round)),
                  {.mean = 0.0, .stddev = p.init.scale});
    for (int64_t i = first; i < values.numel(); ++i) {
      if (beyond(i)) data[i] = again.data<float>()[i];
    }
  }
}

}  // namespace

void InitialiseParameter(const Parameter& p, uint64_t seed) {
  if (p.tensor.device().is_meta()) return;
  if (p.init.kind == Init::Kind::kZeros || p.init.kind == Init::Kind::kOnes) {
    Fill(p.tensor, p.init.kind == Init::Kind::kOnes ? 1.0 : 0.0);
    return;
  }
  Fill(p.tensor, 0.0);  // padding
  const RandomKey key = InitialisationKey(seed, p.name);
  const Shape& global = p.placement.global_shape();
  for (const BoxMapping& box : p.placement.boxes()) {
    const Tensor values = Empty(box.global.size);
    const GlobalBox whole{{global.begin(), global.end()},
                          {box.global.begin.begin(), box.global.begin.end()},
                          {box.global.size.begin(), box.global.size.end()}};
    if (p.init.kind == Init::Kind::kNormal) {
      FillNormalBox(values.data<float>(), whole, key, {.mean = 0.0, .stddev = p.init.scale});
      if (p.init.cutoff > 0) RedrawBeyond(p, seed, whole, values);
    } else {
      FillUniformBox(values.data<float>(), whole, key,
                     {.low = -p.init.scale, .high = p.init.scale});
    }
    const Tensor on_device = CopyTo(values, p.tensor.device());
    CopyInto(BoxView(p.tensor, {box.local_begin, box.global.size}), on_device);
    const int64_t zero = p.init.zero_row - box.global.begin[0];
    if (p.init.zero_row < 0 || zero < 0 || zero >= box.global.size[0]) continue;
    Box row = {box.local_begin, box.global.size};
    row.begin[0] += zero;
    row.size[0] = 1;
    Fill(BoxView(p.tensor, row), 0.0);
  }
}

Module::Module(const Scope& scope)
    : path_(std::make_shared<const std::string>(scope.path)),
      build_(scope.build),
      names_(scope.parent != nullptr && scope.parent->path() == scope.path
                 ? scope.parent->names_
                 : std::make_shared<std::set<std::string>>()) {
  if (scope.parent != nullptr) scope.parent->Adopt(*this);
}

Module::~Module() {
  for (Module* const child : children_) child->parent_ = nullptr;
  if (parent_ == nullptr) return;
  std::erase(parent_->children_, this);
  if (path() != parent_->path()) {
    parent_->names_->erase(path());
  } else if (names_ == parent_->names_) {
    for (const auto& p : parameters_) names_->erase(p->name);
  }
}

void Module::TakeName(const std::string& path) {
  TESSERA_CHECK(names_->insert(path).second, "module", "two children or parameters of ",
                path_->empty() ? "the root" : "'" + *path_ + "'", " are named '", path, "'");
}

void Module::Adopt(Module& child) {
  if (child.path() != path()) TakeName(child.path());
  children_.push_back(&child);
  child.parent_ = this;
}

Scope Module::Child(const std::string& name) {
  if (name.empty()) return {path(), this, build_};
  return {path().empty() ? name : path() + "." + name, this, build_};
}

Parameter& Module::AddParameter(const std::string& name, const Placement& placement,
                                const Init& init) {
  const Shape& shape = placement.global_shape();
  TESSERA_CHECK(shape.numel() > 0, "module", "parameter '", Child(name).path, "' of shape ", shape,
                " has a size of zero; a size of its layer's configuration was not set");
  auto p = std::make_unique<Parameter>();
  p->name = Child(name).path;
  p->elsewhere = build_->elsewhere;
  p->placement = p->elsewhere ? NoPart(shape) : placement;
  if (placement.is_split()) p->part_group = build_->tensor_parallel;
  p->expert_group = build_->expert_group;
  p->init = init;
  TakeName(p->name);
  MakeTensor(*build_, p.get());
  Parameter& added = KeepParameter(std::move(p));
  if (build_->on_parameter && added.form == nullptr && !added.elsewhere) {
    build_->on_parameter(added);
  }
  return added;
}

Parameter& Module::AddTiedParameter(const std::string& name, Parameter& source) {
  auto p = std::make_unique<Parameter>();
  p->name = Child(name).path;
  p->placement = source.placement;
  p->part_group = source.part_group;
  p->trees = source.trees;
  p->init = source.init;
  p->tied_to = &source;
  p->tensor = source.tensor.Detach();
  p->form = source.form;
  p->can_train = source.can_train;
  TakeName(p->name);
  return KeepParameter(std::move(p));
}

Parameter& Module::KeepParameter(std::unique_ptr<Parameter> parameter) {
  if (parameter->can_train && !parameter->tensor.storage()->read_only()) {
    MakeSources(parameter.get());
    LetTrain(*parameter, *build_);
  }
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

void Module::VisitModules(const std::function<void(Module&)>& visit) {
  visit(*this);
  for (Module* child : children_) child->VisitModules(visit);
}

void Module::VisitParameters(const std::function<void(Parameter&)>& visit) {
  for (const auto& p : parameters_) visit(*p);
  for (Module* child : children_) child->VisitParameters(visit);
}

std::vector<Parameter*> Module::Parameters() {
  std::vector<Parameter*> all;
  VisitParameters([&](Parameter& p) { all.push_back(&p); });
  return all;
}

Parameter* Module::FindParameter(std::string_view name) {
  Parameter* found = nullptr;
  VisitParameters([&](Parameter& p) {
    if (p.name == name) found = &p;
  });
  return found;
}

int64_t Module::ParameterCount(bool trainable_only) {
  int64_t count = 0;
  VisitParameters([&](Parameter& p) {
    if (p.tied_to == nullptr && (!trainable_only || RequiresGrad(p.tensor))) {
      count += p.placement.global_shape().numel();
    }
  });
  return count;
}

// A leaf for the tokens of each other rank.
void Module::MakeSources(Parameter* p) const {
  p->by_source.clear();
  if (p->expert_group == nullptr || !build_->deterministic || p->elsewhere) return;
  for (int r = 1; r < p->expert_group->size(); ++r) p->by_source.push_back(p->tensor.Detach());
}

void Module::Convert(const std::function<Tensor(const Tensor&)>& convert) {
  const auto all = Parameters();
  for (Parameter* p : all) {
    if (p->tied_to != nullptr) continue;
    const bool trains = RequiresGrad(p->tensor);
    p->tensor = convert(p->tensor.Detach());
    MakeSources(p);
    if (trains) LetTrain(*p, *build_);
  }
  for (Parameter* p : all) {
    if (p->tied_to == nullptr) continue;
    const bool trains = RequiresGrad(p->tensor);
    p->tensor = p->tied_to->tensor.Detach();
    if (trains) LetTrain(*p, *build_);
  }
}

void Module::To(DType dtype) {
  Convert([dtype](const Tensor& t) { return t.dtype() == dtype ? t : CastCopy(t, dtype); });
}

void Module::To(const Device& device) {
  Convert([&device](const Tensor& t) { return CopyTo(t, device); });
}

int Module::Freeze(std::string_view pattern, bool frozen) {
  int count = 0;
  VisitParameters([&](Parameter& p) {
    if (p.name.find(pattern) == std::string::npos) return;
    ++count;
    if (frozen) {
      DropGrad(p.tensor);
    } else if (p.can_train) {
      LetTrain(p, *build_);
    }
  });
  return count;
}

void Module::ZeroGrad() {
  VisitParameters([](Parameter& p) {
    if (!RequiresGrad(p.tensor)) return;
    SetGrad(p.tensor, Tensor());
    for (const Tensor& leaf : p.by_source) SetGrad(leaf, Tensor());
  });
}

std::map<std::string, Tensor> Module::StateDict() {
  std::map<std::string, Tensor> state;
  VisitParameters([&](Parameter& p) {
    if (p.tied_to == nullptr) state[p.name] = p.tensor.Detach();
  });
  return state;
}

namespace {

// Of PyTorch's BatchNorm, which counts batches beside its running statistics.
bool IsCountOfBatches(const std::string& name, const std::map<std::string, Tensor>& parameters) {
  constexpr std::string_view kCount = "num_batches_tracked";
  return name.ends_with(kCount) &&
         parameters.count(name.substr(0, name.size() - kCount.size()) + "running_mean") > 0;
}

// Bit for bit, in the dtype that both are loaded as.
bool SameNumbers(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.shape() != b.shape()) return false;
  const Tensor x = CopyTo(CastCopy(a, dtype), Device::Cpu());
  const Tensor y = CopyTo(CastCopy(b, dtype), Device::Cpu());
  return x.numel() == 0 ||
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

}  // namespace

Status Module::LoadStateDict(const std::map<std::string, Tensor>& state) {
  std::map<std::string, Tensor> mine = StateDict();
  std::map<std::string, std::string> tied;
  VisitParameters([&](Parameter& p) {
    const Parameter* source = &p;
    while (source->tied_to != nullptr) source = source->tied_to;
    if (source != &p) tied[p.name] = source->name;
  });
  for (const auto& [name, tensor] : state) {
    if (!tensor.defined()) return InvalidArgument("parameter '", name, "' is an undefined tensor");
  }
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    if (found == state.end()) return NotFound("parameter '", name, "' is missing");
    if (found->second.shape() != tensor.shape()) {
      return InvalidArgument("parameter '", name, "' has shape ", found->second.shape(),
                             ", expected ", tensor.shape());
    }
  }
  for (const auto& [name, tensor] : state) {
    if (mine.count(name) > 0 || IsCountOfBatches(name, mine)) continue;
    const auto found = tied.find(name);
    if (found == tied.end()) return InvalidArgument("parameter '", name, "' is not known");
    const std::string& source = found->second;
    if (!SameNumbers(tensor, state.at(source), mine.at(source).dtype())) {
      return InvalidArgument("parameter '", name, "' is tied to '", source,
                             "', which has other values");
    }
  }
  for (const auto& [name, tensor] : mine) CopyInto(tensor, state.at(name));
  return OkStatus();
}

std::string Module::Summary() {
  size_t width = 9;
  VisitParameters([&](Parameter& p) { width = std::max(width, p.name.size()); });
  std::string out;
  const auto blanks = [](size_t column, const std::string& text) {
    return std::string(column - std::min(column, text.size()), ' ');
  };
  const auto row = [&](const std::string& name, const std::string& shape, const std::string& dtype,
                       const std::string& count) {
    out += name + blanks(width + 2, name) + shape + blanks(18, shape) + dtype + blanks(10, dtype) +
           blanks(14, count) + count + '\n';
  };
  row("parameter", "shape", "dtype", "count");
  VisitParameters([&](Parameter& p) {
    const std::string count =
        p.tied_to != nullptr ? "= " + p.tied_to->name : Concat(p.placement.global_shape().numel());
    row(p.name, Concat(p.placement.global_shape()), Concat(p.tensor.dtype()), count);
  });
  row("total", "", "", Concat(ParameterCount()));
  return out;
}

int Module::AddHooks(ModuleHooks hooks) {
  if (hooks_ == nullptr) hooks_ = std::make_shared<std::map<int, ModuleHooks>>();
  (*hooks_)[next_hook_] = std::move(hooks);
  return next_hook_++;
}

void Module::RemoveHooks(int id) {
  if (hooks_ != nullptr) hooks_->erase(id);
}

bool Module::has_hooks() const {
  return HasOwnHooks() ||
         std::any_of(children_.begin(), children_.end(), [](Module* m) { return m->has_hooks(); });
}

void Module::Fire(std::function<void(const Module&)> ModuleHooks::*hook) const {
  if (hooks_ == nullptr) return;
  // A hook may add hooks and remove any, itself as well.
  for (auto it = hooks_->begin(); it != hooks_->end();) {
    const int id = it->first;
    const std::function<void(const Module&)> call = it->second.*hook;
    if (call) call(*this);
    it = hooks_->upper_bound(id);
  }
}

void Module::WatchInput(const Tensor& input) const {
  if (!HasOwnHooks() || !GradEnabled() || !RequiresGrad(input) || IsLeaf(input)) return;
  AddGradHook(input, [this, alive = std::weak_ptr(hooks_)](const Tensor&) {
    if (!alive.expired()) Fire(&ModuleHooks::post_backward);
    return Tensor();
  });
}

void Module::WatchOutput(const Tensor& output) const {
  if (!HasOwnHooks() || !GradEnabled() || !RequiresGrad(output) || IsLeaf(output)) return;
  AddGradHook(output, [this, alive = std::weak_ptr(hooks_)](const Tensor&) {
    if (!alive.expired()) Fire(&ModuleHooks::pre_backward);
    return Tensor();
  });
}

std::string CurrentModulePath() {
  const auto* const path = ExecutionContext::Current().module_path;
  return path == nullptr ? "" : **path;
}

}  // namespace tessera::nn
