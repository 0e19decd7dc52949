// SPDX-License-Identifier: Apache-2.0
// Samples, numbered, and batches made of them: what the trainer draws from, whatever the task.
//
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, dataset.MakeBatch(sampler.Rows({.step = 3})));
//   batch.at(keys::kInputIds);      // int64 [rows, tokens], on the host
//
// A batch is a bundle, under the keys that the model takes (core/batch_keys.h). Its loss is divided
// by `targets`, summed over a whole optimizer step. What a dataset decides at random (masks, crops)
// is a function of its seed and of the sample's position in the line of all samples ever drawn
// (sampler.h), so that it is the same on every layout and after a resume.
#ifndef TESSERA_DATA_DATASET_DATASET_H_
#define TESSERA_DATA_DATASET_DATASET_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "core/bundle.h"

namespace tessera::data {

// The size of a dataset that nobody knows (stream_dataset.h).
inline constexpr int64_t kUnknownSize = std::numeric_limits<int64_t>::max();

// A label that the loss leaves out.
inline constexpr int64_t kIgnoreLabel = -100;

struct Sample {
  int64_t index = 0;     // of [0, size())
  int64_t position = 0;  // in the line of all samples ever drawn
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct Batch {
  int64_t rows = 0;
  int64_t tokens = 0;   // positions the model computes, padding included: for throughput
  int64_t targets = 0;  // what a mean loss is divided by
  Bundle tensors;       // what the model takes

  const Tensor& at(const TensorKey& key) const { return tensors.at(key); }
  bool has(const TensorKey& key) const { return tensors.has(key); }
};

// Where samples come from; a program's own derives from it, or is a MapDataset or StreamDataset.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;  // or kUnknownSize, for training by positions alone
  // The samples as rows, in order. Safe from several threads. Throws Error for an index outside.
  virtual StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const = 0;
  // Tokens of a sample, where samples have any number and batches are padded to the longest;
  // nullopt: they are alike.
  virtual std::optional<int64_t> length_of(int64_t /*index*/) const { return std::nullopt; }
  // What a sample is called outside (a picture's file); empty: nothing.
  virtual std::string NameOf(int64_t /*index*/) const { return ""; }
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_DATASET_H_
