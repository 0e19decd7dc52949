// Keys and values of the tokens seen so far, for decoding one token at a time.
//
//   KeyValueCache cache(num_layers);
//   // in each attention layer: cache.Append(layer, k_BGTD, v_BGTD) returns all of them so far
//
// Holds this rank's key/value heads. Every row (sequence of the batch) has a length of its own:
// `BeginStep` says how many tokens of each row's next input count. Rows can be reordered or
// repeated (beam search). Shapes: B rows, G heads, T new tokens, D head size.
#ifndef TESSERA_NN_KEY_VALUE_CACHE_H_
#define TESSERA_NN_KEY_VALUE_CACHE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace tessera::nn {

class KeyValueCache {
 public:
  explicit KeyValueCache(int num_layers) : layers_(static_cast<size_t>(num_layers)) {}

  // Tokens cached per row before the current step; empty before the first step.
  const std::vector<int64_t>& lengths() const { return lengths_; }

  // Announces a step whose inputs have `new_tokens[b]` (<= T) real tokens in row b, at the front.
  void BeginStep(const std::vector<int64_t>& new_tokens);
  // Writes a layer's new keys and values behind the row's old ones; returns views of all, [B, G,
  // longest, D]. Row b's keys beyond lengths()[b] + new_tokens[b] are not to be looked at.
  std::pair<Tensor, Tensor> Append(int layer, const Tensor& k, const Tensor& v);
  // Keys and values of a source sequence (an encoder's), [B, G, S, D]: set once, the same for all
  // steps.
  bool HasMemory(int layer) const;
  void SetMemory(int layer, const Tensor& k, const Tensor& v);
  std::pair<Tensor, Tensor> Memory(int layer) const;

  // The step is over: its tokens now count.
  void EndStep();
  // The first layer that has not appended anything in this step; -1: each has.
  int MissingLayer() const;

  // [B] int32 for attention: where a row's new queries begin, and how many keys it has, now.
  Tensor QueryOffsets() const;
  Tensor KeyLengths() const;
  // The greatest of KeyLengths.
  int64_t LongestAfterStep() const;

  // Row b becomes what row rows[b] was; the number of rows may change.
  void Reorder(const std::vector<int64_t>& rows);

 private:
  struct Layer {
    Tensor k;  // [B, G, capacity, D]
    Tensor v;
    Tensor memory_k;  // [B, G, S, D]
    Tensor memory_v;
    bool appended = false;  // in this step
  };
  void Grow(Layer& layer, const Tensor& k, int64_t needed) const;

  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> new_tokens_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_KEY_VALUE_CACHE_H_
