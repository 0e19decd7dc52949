#include "nn/key_value_cache.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr int64_t kGrowth = 64;  // capacity grows by halves, rounded up to this

Tensor AsInt32(const std::vector<int64_t>& values) {
  Tensor t = Empty({static_cast<int64_t>(values.size())}, DType::kInt32);
  for (size_t i = 0; i < values.size(); ++i) {
    t.data<int32_t>()[i] = static_cast<int32_t>(values[i]);
  }
  return t;
}

}  // namespace

void KeyValueCache::BeginStep(const std::vector<int64_t>& new_tokens) {
  if (lengths_.empty()) lengths_.assign(new_tokens.size(), 0);
  TESSERA_CHECK(new_tokens.size() == lengths_.size(), "key_value_cache", new_tokens.size(),
                " rows in a step of a cache with ", lengths_.size());
  new_tokens_ = new_tokens;
  for (Layer& layer : layers_) layer.appended = false;
}

int KeyValueCache::MissingLayer() const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [](const Layer& layer) { return !layer.appended; });
  return found == layers_.end() ? -1 : static_cast<int>(found - layers_.begin());
}

void KeyValueCache::Grow(Layer& layer, const Tensor& k, int64_t needed) const {
  const int64_t capacity = layer.k.defined() ? layer.k.size(2) : 0;
  if (needed <= capacity) return;
  const int64_t larger =
      (std::max(needed, capacity + capacity / 2) + kGrowth - 1) / kGrowth * kGrowth;
  for (Tensor* t : {&layer.k, &layer.v}) {
    const Tensor room = Empty({k.size(0), k.size(1), larger, k.size(3)}, k.dtype(), k.device());
    if (t->defined()) CopyInto(Slice(room, 2, 0, capacity), *t);
    *t = room;
  }
}

std::pair<Tensor, Tensor> KeyValueCache::Append(int layer_index, const Tensor& k, const Tensor& v) {
  const NoGrad no_grad;
  TESSERA_CHECK(layer_index >= 0 && layer_index < static_cast<int>(layers_.size()),
                "key_value_cache", "layer ", layer_index, " of ", layers_.size());
  TESSERA_CHECK(k.size(0) == static_cast<int64_t>(new_tokens_.size()), "key_value_cache", k,
                " in a step of ", new_tokens_.size(), " rows");
  for (size_t b = 0; b < lengths_.size(); ++b) {
    TESSERA_CHECK(new_tokens_[b] <= k.size(2), "key_value_cache", new_tokens_[b],
                  " new tokens in row ", b, " of ", k);
  }
  const int64_t longest = LongestAfterStep();
  Layer& layer = layers_[static_cast<size_t>(layer_index)];
  layer.appended = true;
  Grow(layer, k, longest);
  for (size_t b = 0; b < lengths_.size(); ++b) {
    const auto row = static_cast<int64_t>(b);
    const auto write = [&](const Tensor& to, const Tensor& from) {
      CopyInto(Slice(Slice(to, 0, row, 1), 2, lengths_[b], new_tokens_[b]),
               Slice(Slice(from, 0, row, 1), 2, 0, new_tokens_[b]));
    };
    write(layer.k, k);
    write(layer.v, v);
  }
  return {Slice(layer.k, 2, 0, longest), Slice(layer.v, 2, 0, longest)};
}

bool KeyValueCache::HasMemory(int layer) const {
  return layers_.at(static_cast<size_t>(layer)).memory_k.defined();
}

void KeyValueCache::SetMemory(int layer, const Tensor& k, const Tensor& v) {
  layers_.at(static_cast<size_t>(layer)).memory_k = k.Detach();
  layers_.at(static_cast<size_t>(layer)).memory_v = v.Detach();
}

std::pair<Tensor, Tensor> KeyValueCache::Memory(int layer) const {
  const Layer& kept = layers_.at(static_cast<size_t>(layer));
  return {kept.memory_k, kept.memory_v};
}

void KeyValueCache::EndStep() {
  for (size_t b = 0; b < lengths_.size(); ++b) lengths_[b] += new_tokens_[b];
  std::fill(new_tokens_.begin(), new_tokens_.end(), 0);
}

Tensor KeyValueCache::QueryOffsets() const { return AsInt32(lengths_); }

Tensor KeyValueCache::KeyLengths() const {
  std::vector<int64_t> totals = lengths_;
  for (size_t b = 0; b < totals.size(); ++b) totals[b] += new_tokens_[b];
  return AsInt32(totals);
}

int64_t KeyValueCache::LongestAfterStep() const {
  int64_t longest = 0;
  for (size_t b = 0; b < lengths_.size(); ++b) {
    longest = std::max(longest, lengths_[b] + new_tokens_[b]);
  }
  return longest;
}

void KeyValueCache::Reorder(const std::vector<int64_t>& rows) {
  const NoGrad no_grad;
  const Tensor index = Tensor::FromVector<int64_t>(rows, {static_cast<int64_t>(rows.size())});
  std::vector<int64_t> lengths;
  for (int64_t row : rows) lengths.push_back(lengths_.at(static_cast<size_t>(row)));
  for (Layer& layer : layers_) {
    for (Tensor* t : {&layer.k, &layer.v, &layer.memory_k, &layer.memory_v}) {
      if (t->defined()) *t = IndexSelect(*t, 0, CopyTo(index, t->device()));
    }
  }
  lengths_ = std::move(lengths);
  new_tokens_.assign(lengths_.size(), 0);
}

}  // namespace tessera::nn
