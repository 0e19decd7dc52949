// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/whole_model.h"

#include <memory>
#include <string>
#include <unordered_map>

#include "base/json_text.h"
#include "core/memory_use.h"
#include "dist/mesh/unshard.h"
#include "dist/pipeline/pipelined_model.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"

namespace tessera::train {
namespace {

using ByName = std::unordered_map<std::string, nn::Parameter*>;

// Looked up for every parameter of the whole model, of which there may be many thousands.
ByName ParametersByName(models::Model& model) {
  ByName parameters;
  model.VisitParameters([&](nn::Parameter& p) { parameters[p.name] = &p; });
  return parameters;
}

// The whole of a parameter of the whole model, wherever its parts are.
// `scope` holds it gathered over dp until the next one is asked for: what lies in one bucket comes
// together.
Tensor Gather(models::Model& model, const ByName& parameters, const dist::Mesh& mesh,
              dist::ParameterStore& store, const nn::Parameter& p, dist::GatheredScope* scope) {
  const auto whole_part = [&] {
    nn::Parameter* const mine = parameters.at(p.name);
    *scope = store.Gather({mine});
    return dist::Unshard(*mine, mesh);
  };
  const dist::Stage* stage = model.stage();
  if (stage == nullptr) return whole_part();
  const bool owner = stage->Owns(p.name);
  const Tensor whole =
      owner ? whole_part().ContiguousCopy()
            : Empty(p.placement.global_shape(), p.tensor.dtype(), model.build().device);
  const Tensor root = Tensor::FromVector<int64_t>({owner ? stage->rank() : -1}, {1});
  stage->group()->AllReduce(root, ReduceOp::kMax)->Wait();
  stage->group()->Broadcast(whole, static_cast<int>(root.data<int64_t>()[0]))->Wait();
  return whole;
}

// Names and shapes of the whole model, without data.
StatusOr<std::unique_ptr<models::Model>> ShapeOf(const models::Model& model) {
  const MemoryUseScope use(MemoryUse::kShape);
  nn::BuildContext dry;
  dry.dtype = model.build().dtype;
  dry.device = Device::Meta();
  dry.initialise = false;
  return models::BuildModel(model.config(), dry);
}

}  // namespace

Status SaveWholeModel(models::Model& model, const dist::Mesh& mesh, dist::ParameterStore& store,
                      const std::string& folder, const data::Tokenizer* tokenizer,
                      const std::vector<std::pair<std::string, std::string>>& files) {
  auto shape = ShapeOf(model);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, shape.status()));
  models::SaveOptions options;
  dist::GatheredScope scope;
  const ByName parameters = ParametersByName(model);
  options.gather = [&](nn::Parameter& p) {
    return Gather(model, parameters, mesh, store, p, &scope);
  };
  options.write = mesh.prints() && !model.build().device.is_meta();
  for (const auto& [name, text] : files) {
    if (name != "generation_config.json") {
      options.files.emplace_back(name, text);
      continue;
    }
    const auto generation = ParseJson(text, name);
    TESSERA_RETURN_IF_ERROR(Agree(mesh, generation.status()));
    options.generation_config = *generation;
  }
  return Agree(mesh, models::SaveModel(**shape, folder, tokenizer, options));
}

Status SaveWholeAdapter(models::Model& model, const models::AdapterConfig& config,
                        const dist::Mesh& mesh, dist::ParameterStore& store,
                        const std::string& folder) {
  auto shape = ShapeOf(model);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, shape.status()));
  const auto adapter = [&] {
    const MemoryUseScope use(MemoryUse::kShape);
    return models::AttachAdapter(**shape, config);
  }();
  TESSERA_RETURN_IF_ERROR(Agree(mesh, adapter.status()));
  dist::GatheredScope scope;
  models::SaveAdapterOptions options;
  const ByName parameters = ParametersByName(model);
  options.gather = [&](nn::Parameter& p) {
    return Gather(model, parameters, mesh, store, p, &scope);
  };
  options.write = mesh.prints() && !model.build().device.is_meta();
  return Agree(mesh, models::SaveAdapter(**shape, config, *adapter, folder, options));
}

}  // namespace tessera::train
