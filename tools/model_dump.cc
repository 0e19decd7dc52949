// SPDX-License-Identifier: Apache-2.0
#include "tools/model_dump.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "autograd/autograd.h"
#include "autograd/engine.h"
#include "autograd/tape_watcher.h"
#include "base/file.h"
#include "models/hub/load_model.h"
#include "models/input_check.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "tools/model_gradients.h"
#include "tools/settings.h"

namespace tessera::tools {
namespace {

using models::Bundle;

constexpr char kInputs[] = "inputs/";
constexpr char kOutputs[] = "outputs/";
constexpr char kGradients[] = "gradients/";

// The name behind a prefix.
std::optional<std::string> After(const std::string& prefix, const std::string& name) {
  if (name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  return name.substr(prefix.size());
}

// Keeps the last result of each of the wanted modules: what its Forward returned, of a module that
// has no modules of its own.
class ModuleOutputs final : public TapeWatcher {
 public:
  explicit ModuleOutputs(std::set<std::string> wanted) : wanted_(std::move(wanted)) {}

  // In the order of the computation.
  std::vector<std::pair<std::string, Tensor>> Take() const {
    std::vector<std::pair<std::string, Tensor>> outputs;
    for (const auto& [number, name] : order_) outputs.emplace_back(name, last_.at(name).second);
    return outputs;
  }

 private:
  void Results(const Origin& origin, const std::vector<Tensor>&,
               const std::vector<Tensor>& results) override {
    if (origin.module_path == nullptr || results.empty() || !results[0].defined() ||
        !wanted_.contains(*origin.module_path)) {
      return;
    }
    const std::string& name = *origin.module_path;
    const auto before = last_.find(name);
    if (before != last_.end()) order_.erase(before->second.first);
    last_[name] = {number_, results[0].Detach()};
    order_[number_++] = name;
  }
  void Arriving(const Origin&, const std::vector<Tensor>&) override {}
  void Gradient(const Origin&, size_t, const Tensor&, const std::vector<Tensor>&) override {}

  const std::set<std::string> wanted_;
  int64_t number_ = 0;
  std::map<std::string, std::pair<int64_t, Tensor>> last_;
  std::map<int64_t, std::string> order_;
};

}  // namespace

bool IsModelDump(const NamedTensors& tensors) {
  const auto has = [&](const char* prefix) {
    return std::any_of(tensors.names().begin(), tensors.names().end(),
                       [&](const std::string& name) { return After(prefix, name).has_value(); });
  };
  return has(kInputs) && (has(kOutputs) || has(kGradients));
}

StatusOr<DumpTensors> TensorsLike(const NamedTensors& dump, const std::string& model_path) {
  const std::string of_run = JoinPath(model_path, "model");
  TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                           FolderOrArchive(IsDirectory(of_run) ? of_run : model_path));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> model,
                           models::LoadModel(folder, {.require_weights = true}));
  std::vector<Bundle::Entry> named;
  std::set<std::string> outputs, gradients;
  for (const std::string& name : dump.names()) {
    if (const auto input = After(kInputs, name)) {
      TESSERA_ASSIGN_OR_RETURN(const Tensor t, dump.Read(name));
      named.emplace_back(*input, t);
    } else if (const auto output = After(kOutputs, name)) {
      outputs.insert(*output);
    } else if (const auto gradient = After(kGradients, name)) {
      gradients.insert(*gradient);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           models::InputsFromNamed(dump.path(), *model, named));
  if (!gradients.empty() && !inputs.has(keys::kLabels)) {
    return InvalidArgument(dump.path(),
                           ": has gradients, but no 'inputs/labels', which give the loss");
  }
  DumpTensors ours;
  ModuleOutputs watcher(outputs);
  Bundle result;
  {
    const TapeWatcher::Scope scope(&watcher);
    result = model->Run(inputs, {});
  }
  for (auto& [name, t] : watcher.Take()) {
    outputs.erase(name);
    ours.tensors.emplace_back(kOutputs + name, t);
  }
  // What the model returns under a name of its own: logits, last_hidden_state, loss.
  for (const auto& [name, t] : result.entries()) {
    if (outputs.erase(name) > 0) ours.tensors.emplace_back(kOutputs + name, t.Detach());
  }
  if (!gradients.empty()) {
    Backward(result.at(keys::kLoss));
    std::vector<std::pair<std::string, Tensor>> collected = CollectGradients(*model);
    // The backward pass ends with the first parameters.
    std::reverse(collected.begin(), collected.end());
    for (const auto& [name, t] : collected) {
      if (gradients.erase(name) > 0) ours.tensors.emplace_back(kGradients + name, t);
    }
  }
  for (const std::string& name : outputs) ours.missing.push_back(kOutputs + name);
  for (const std::string& name : gradients) ours.missing.push_back(kGradients + name);
  if (ours.tensors.empty()) {
    return InvalidArgument(dump.path(), ": the model in ", folder, " has none of its modules (",
                           ours.missing.front(), ")");
  }
  return ours;
}

}  // namespace tessera::tools
