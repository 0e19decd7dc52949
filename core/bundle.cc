// SPDX-License-Identifier: Apache-2.0
#include "core/bundle.h"

#include "base/error.h"

namespace tessera {

bool TensorKey::Holds(DType dtype) const {
  switch (elements_) {
    case KeyElements::kInt64:
      return dtype == DType::kInt64;
    case KeyElements::kInt32:
      return dtype == DType::kInt32;
    case KeyElements::kFloating:
      return IsFloating(dtype);
    case KeyElements::kAny:
      return true;
  }
  return false;
}

bool IsLocalName(std::string_view name) { return name.starts_with("local."); }

Bundle::Bundle(std::initializer_list<std::pair<TensorKey, Tensor>> entries) {
  entries_.reserve(entries.size());
  for (const auto& [key, tensor] : entries) set(key, tensor);
}

const Tensor& Bundle::at(const TensorKey& key) const {
  if (const Tensor* found = FindNamed(key.name())) return *found;
  std::string names;
  for (const auto& [name, tensor] : entries_) names += " " + name;
  throw Error("bundle", Concat("tensor '", key.name(), "' ", key.shape(), " (", key.meaning(),
                               ") is missing; given are:", names));
}

Tensor Bundle::get(const TensorKey& key) const {
  const Tensor* found = FindNamed(key.name());
  return found == nullptr ? Tensor() : *found;
}

void Bundle::set(const TensorKey& key, Tensor t) {
  TESSERA_CHECK(!t.defined() || key.Holds(t.dtype()), "bundle", "'", key.name(), "' ", key.shape(),
                " (", key.meaning(), ") cannot be ", t);
  SetNamed(key.name(), std::move(t));
}

void Bundle::erase(const TensorKey& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == key.name(); });
}

const Tensor* Bundle::FindNamed(std::string_view name) const {
  for (const auto& [known, tensor] : entries_) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

void Bundle::SetNamed(std::string_view name, Tensor t) {
  for (auto& [known, tensor] : entries_) {
    if (known == name) {
      tensor = std::move(t);
      return;
    }
  }
  entries_.emplace_back(name, std::move(t));
}

Bundle OnDevice(const Bundle& bundle, const Device& device) {
  Bundle there;
  for (const auto& [name, tensor] : bundle.entries()) {
    there.SetNamed(name, tensor.device() == device ? tensor : CopyTo(tensor, device));
  }
  return there;
}

}  // namespace tessera
