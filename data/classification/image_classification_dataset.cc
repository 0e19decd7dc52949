// SPDX-License-Identifier: Apache-2.0
#include "data/classification/image_classification_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/image/augment.h"

namespace tessera::data {

StatusOr<std::shared_ptr<const ImageClassificationDataset>> ImageClassificationDataset::Create(
    std::shared_ptr<const ImageSource> source, ImageProcessor processor,
    const ImageClassificationOptions& options) {
  std::shared_ptr<ImageClassificationDataset> data(
      new ImageClassificationDataset(std::move(source), std::move(processor), options));
  const std::vector<std::string>& found = data->source_->names();
  data->label_names_ = options.label_names.empty() ? found : options.label_names;
  for (const std::string& name : found) {
    const auto known = std::find(data->label_names_.begin(), data->label_names_.end(), name);
    if (known == data->label_names_.end()) {
      return InvalidArgument("unknown class '", name, "'", DidYouMean(name, data->label_names_));
    }
    data->ids_.push_back(known - data->label_names_.begin());
  }
  return std::shared_ptr<const ImageClassificationDataset>(std::move(data));
}

std::vector<int64_t> ImageClassificationDataset::labels() const {
  std::vector<int64_t> labels;
  for (const int64_t label : source_->labels()) labels.push_back(ids_[static_cast<size_t>(label)]);
  return labels;
}

StatusOr<Batch> ImageClassificationDataset::MakeBatch(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  const Tensor pixels = Empty(
      {rows, processor_.channels(), processor_.height(), processor_.width()}, DType::kFloat32);
  const Tensor labels = Empty({rows}, DType::kInt64);
  for (const Sample& sample : samples) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "ImageClassificationDataset",
                  "there is no sample ", sample.index);
  }
  std::vector<Status> failures(samples.size());
  ParallelFor(rows, /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const Sample& sample = samples[static_cast<size_t>(r)];
      failures[static_cast<size_t>(r)] =
          Prepare(sample, pixels.data<float>() + r * processor_.OutputSize());
      if (!source_->has_labels()) continue;
      labels.data<int64_t>()[r] = ids_[static_cast<size_t>(source_->label(sample.index))];
    }
  });
  for (const Status& failure : failures) TESSERA_RETURN_IF_ERROR(failure);
  Batch batch;
  batch.rows = rows;
  batch.tokens = rows;
  batch.targets = rows;
  batch.tensors = {{keys::kPixelValues, pixels}};
  if (source_->has_labels()) batch.tensors.set(keys::kLabels, labels);
  return batch;
}

Status ImageClassificationDataset::Prepare(const Sample& sample, float* pixels) const {
  TESSERA_ASSIGN_OR_RETURN(Image image, source_->Read(sample.index));
  // A random crop replaces the resizing and cropping of the folder.
  image = options_.random_crop ? WithChannels(image, processor_.channels())
                               : processor_.ResizeAndCrop(image);
  if (!options_.random_crop && !options_.random_flip) {
    processor_.Convert(image, pixels);
    return OkStatus();
  }
  const int64_t height = processor_.height();
  const int64_t width = processor_.width();
  const bool fits = image.height == height && image.width == width;
  AugmentOptions augment = {
      .height = height, .width = width, .resample = processor_.config().resample};
  augment.flip_probability = options_.random_flip ? 0.5 : 0.0;
  if (options_.random_crop && fits) augment.border = std::max<int64_t>(1, height / 8);
  if (options_.random_crop && !fits) augment.min_area = 0.08;
  const auto position = static_cast<uint64_t>(sample.position);
  processor_.Convert(Augment(image, augment, AugmentKey(options_.seed, position)), pixels);
  return OkStatus();
}

}  // namespace tessera::data
