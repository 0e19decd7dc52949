#include "models/model.h"

#include <algorithm>

#include "nn/dropout.h"

namespace tessera::models {
namespace {

std::vector<const Family*>& Registered() {
  static auto* families = new std::vector<const Family*>;
  return *families;
}

}  // namespace

const Tensor* Bundle::Find(std::string_view name) const {
  for (const auto& [key, tensor] : entries_) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

const Tensor& Bundle::at(std::string_view name) const {
  const Tensor* found = Find(name);
  if (found == nullptr) {
    std::string names;
    for (const auto& [key, tensor] : entries_) names += " " + key;
    throw Error("model", Concat("tensor '", name, "' is missing; given are:", names));
  }
  return *found;
}

Tensor Bundle::get(std::string_view name) const {
  const Tensor* found = Find(name);
  return found == nullptr ? Tensor() : *found;
}

void Bundle::set(const std::string& name, Tensor t) {
  for (auto& [key, tensor] : entries_) {
    if (key == name) {
      tensor = std::move(t);
      return;
    }
  }
  entries_.emplace_back(name, std::move(t));
}

void Bundle::erase(std::string_view name) {
  std::erase_if(entries_, [&](const auto& entry) { return entry.first == name; });
}

std::pair<int, int> Model::block_range() const {
  const int end = build().end_block < 0 ? num_blocks() : build().end_block;
  return {build().first_block, end};
}

bool Model::HasBlock(int block) const {
  const auto [first, end] = block_range();
  return block >= first && block < end;
}

nn::ForwardContext ContextFor(const Bundle& in, const RunOptions& options) {
  nn::ForwardContext context = options.context;
  context.sequence_length = in.at("position_ids").size(-1);
  return context;
}

Bundle Model::Run(const Bundle& inputs, const RunOptions& options) {
  Bundle bundle = inputs;
  const auto [first, end] = block_range();
  for (int block = first; block < end; ++block) {
    bundle = RunBlock(block, std::move(bundle), options);
  }
  return bundle;
}

Bundle Model::Encode(Bundle, const RunOptions&) {
  throw Error("encode", "this model has no encoder");
}

void Model::SetDropout(double p) {
  VisitModules([p](nn::Module& m) {
    if (auto* dropout = dynamic_cast<nn::Dropout*>(&m)) dropout->set_p(p);
  });
}

FamilyRegistration::FamilyRegistration(const Family* family) { Registered().push_back(family); }

const std::vector<const Family*>& Families() { return Registered(); }

const Preset* FindPreset(std::string_view name) {
  for (const Family* family : Families()) {
    for (const Preset& preset : family->presets) {
      if (preset.name == name) return &preset;
    }
  }
  return nullptr;
}

const Family* FindFamily(std::string_view model_type) {
  for (const Family* family : Families()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Model>> BuildModel(const nlohmann::json& config,
                                                  const nn::BuildContext& context) {
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string()) {
    return InvalidArgument("the configuration has no \"model_type\"");
  }
  const std::string type = config["model_type"].get<std::string>();
  const Family* family = FindFamily(type);
  if (family == nullptr) {
    std::string known;
    for (const Family* f : Families()) known += (known.empty() ? "" : ", ") + f->model_type;
    return InvalidArgument("model_type '", type, "' is not known; known are ", known);
  }
  return family->build(config, context);
}

}  // namespace tessera::models
