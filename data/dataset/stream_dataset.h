// SPDX-License-Identifier: Apache-2.0
// A program's own samples as they come, in a line whose length nobody need know.
//
//   data.train = std::make_shared<StreamDataset<Pair>>(StreamOptions<Pair>{
//       .open = [](int64_t pass) -> StatusOr<StreamReader<Pair>> {
//         auto file = std::make_shared<std::ifstream>("pairs.txt");
//         return [file]() -> StatusOr<std::optional<Pair>> { return ReadPair(*file); };
//       },
//       .collate = ToBatch,
//       .shuffle_buffer = 10000});
//   config.max_steps = 5000;               // where the length is not known
//
// (PyTorch's IterableDataset.) Every rank reads the whole stream and collates what the trainer asks
// it for, by positions in the line of all samples ever drawn (sampler.h): each sample is used once,
// on any layout. Behind the last sample the stream is opened again. With a shuffle buffer sample p
// of the line is one that is in the buffer at random, a function of the seed and p alone. A run
// that resumes reads up to its place again: samples are read, not collated. So the stream must give
// the same samples each time it is opened for a pass. With `drop_last` epochs are shorter, as
// elsewhere, but nothing of a stream is left out.
//
// What fails, exceptions included, is one line with the sample's number in the stream.
#ifndef TESSERA_DATA_DATASET_STREAM_DATASET_H_
#define TESSERA_DATA_DATASET_STREAM_DATASET_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/random.h"
#include "data/dataset/sample_collation.h"

namespace tessera::data {

// The next sample; nullopt behind the last.
template <typename Item>
using StreamReader = std::function<StatusOr<std::optional<Item>>()>;

template <typename Item>
struct StreamOptions {
  // The stream from its first sample; `pass` counts from 0.
  std::function<StatusOr<StreamReader<Item>>(int64_t pass)> open;
  std::function<StatusOr<Batch>(std::span<const Item> items)> collate;
  int64_t shuffle_buffer = 0;   // samples to choose from; 0: as they come
  uint64_t seed = 0;            // of the shuffling
  int64_t size = kUnknownSize;  // samples of a pass, where that is known: what an epoch is
};

template <typename Item>
class StreamDataset : public Dataset {
 public:
  explicit StreamDataset(StreamOptions<Item> options) : options_(std::move(options)) {
    TESSERA_CHECK(options_.open != nullptr && options_.collate != nullptr &&
                      options_.shuffle_buffer >= 0 && options_.size >= 1,
                  "StreamDataset", "a function is missing, or a number is too small");
  }

  int64_t size() const override { return options_.size; }

  // The samples at these positions, whatever their indices. Goes back to the beginning where one is
  // behind the place that was reached.
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Item> items;
    for (const Sample& sample : samples) {
      if (sample.position < drawn_) Rewind();
      while (drawn_ < sample.position) TESSERA_RETURN_IF_ERROR(Draw().status());
      TESSERA_ASSIGN_OR_RETURN(Item item, Draw());
      items.push_back(std::move(item));
    }
    const std::string where =
        samples.empty() ? "no samples" : Concat("the batch of sample ", samples[0].position);
    return GuardedSample<Batch>(where, [&] { return options_.collate(items); });
  }

 private:
  void Rewind() const {
    reader_ = nullptr;
    buffer_.clear();
    pass_ = read_ = read_in_pass_ = drawn_ = 0;
  }

  // The next sample of the line.
  StatusOr<Item> Draw() const {
    while (std::ssize(buffer_) < std::max<int64_t>(options_.shuffle_buffer, 1)) {
      TESSERA_ASSIGN_OR_RETURN(Item item, Read());
      buffer_.push_back(std::move(item));
    }
    size_t chosen = 0;
    if (buffer_.size() > 1) {
      const RandomKey key =
          RandomKey::FromSeed(options_.seed).With("stream").With(static_cast<uint64_t>(drawn_));
      chosen = static_cast<size_t>(UniformDouble(key, 0) * static_cast<double>(buffer_.size()));
    }
    Item item = std::move(buffer_[chosen]);
    if (chosen + 1 < buffer_.size()) buffer_[chosen] = std::move(buffer_.back());
    buffer_.pop_back();
    ++drawn_;
    return item;
  }

  // The next one of the stream, opened again behind its last.
  StatusOr<Item> Read() const {
    for (;;) {
      const std::string where = Concat("sample ", read_, " of the stream");
      if (reader_ == nullptr) {
        TESSERA_ASSIGN_OR_RETURN(reader_, GuardedSample<StreamReader<Item>>(
                                              where, [&] { return options_.open(pass_); }));
        read_in_pass_ = 0;
      }
      TESSERA_ASSIGN_OR_RETURN(std::optional<Item> item,
                               GuardedSample<std::optional<Item>>(where, reader_));
      if (item.has_value()) {
        ++read_;
        ++read_in_pass_;
        return *std::move(item);
      }
      if (read_in_pass_ == 0) {
        return InvalidArgument(where, ": the stream has no samples in pass ", pass_);
      }
      reader_ = nullptr;
      ++pass_;
    }
  }

  const StreamOptions<Item> options_;
  // How far this rank has come; what is asked for does not depend on it.
  mutable std::mutex mutex_;
  mutable StreamReader<Item> reader_;
  mutable std::vector<Item> buffer_;
  mutable int64_t pass_ = 0;
  mutable int64_t read_ = 0;
  mutable int64_t read_in_pass_ = 0;
  mutable int64_t drawn_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_STREAM_DATASET_H_
