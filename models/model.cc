#include "models/model.h"

#include <algorithm>

#include "nn/dropout.h"

namespace tessera::models {

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

void Model::SetDropout(double p) {
  VisitModules([p](nn::Module& m) {
    if (auto* dropout = dynamic_cast<nn::Dropout*>(&m)) dropout->set_p(p);
  });
}

}  // namespace tessera::models
