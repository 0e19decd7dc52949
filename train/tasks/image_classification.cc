// SPDX-License-Identifier: Apache-2.0
// Classification of pictures from class folders, IDX files or tables.
#include "base/options.h"
#include "data/classification/image_classification_dataset.h"
#include "data/dataset/subset.h"
#include "data/image/image_processor.h"
#include "models/classification.h"
#include "models/family.h"
#include "nlohmann/json.hpp"
#include "train/tasks/class_metrics.h"
#include "train/tasks/class_predictions.h"
#include "train/tasks/label_setup.h"

namespace tessera::train {
namespace {

using data::ImageClassificationDataset;
using data::ImageSource;
using PictureDatasetPtr = std::shared_ptr<const ImageClassificationDataset>;

struct ImageOptions : LabelOptions {
  std::string image_column;
  bool random_crop = false;
  bool random_flip = false;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<ImageOptions>("image_classification")
            .Include<ImageOptions, LabelOptions>()
            .Add("image_column", &ImageOptions::image_column, "a table's column of pictures",
                 {.unset = "`image`, `img`, or the only one that can be",
                  .evaluation = true,
                  .aliases = {{"image_column_name", "Hugging Face"}}})
            .Add("random_crop", &ImageOptions::random_crop, "train on random crops")
            .Add("random_flip", &ImageOptions::random_flip, "train on mirror images too"));
    return *table;
  }
};

int FitImageClassification(const RunConfig&, const models::Architecture*) { return 1; }

StatusOr<PictureDatasetPtr> OpenPictures(const std::string& path, const data::ImageColumns& columns,
                                         const data::ImageProcessor& processor,
                                         const data::ImageClassificationOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const ImageSource> source,
                           ImageSource::Open(path, ImageSource::Labels::kNeeded, columns));
  const auto data = ImageClassificationDataset::Create(source, processor, options);
  if (!data.ok()) return InvalidArgument(path, ": ", Message(data.status()));
  return data;
}

StatusOr<TaskData> OpenForEvaluation(const TaskInput& input,
                                     const data::ImageProcessor& processor) {
  TESSERA_ASSIGN_OR_RETURN(const std::string data_path, input.OneSource());
  TESSERA_ASSIGN_OR_RETURN(const auto keys, input.config.Part<ImageOptions>());
  TESSERA_ASSIGN_OR_RETURN(const data::ImageParts parts, data::FindImageParts(data_path));
  const std::string path = parts.validation.empty() ? parts.train : parts.validation;
  TESSERA_ASSIGN_OR_RETURN(
      const std::shared_ptr<const ImageSource> source,
      ImageSource::Open(
          path, input.prediction ? ImageSource::Labels::kOptional : ImageSource::Labels::kNeeded,
          {keys.image_column, keys.label_columns}));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           LabelsForEvaluation(input, source->names()));
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(data.validation, ImageClassificationDataset::Create(
                                                source, processor, {.label_names = names}));
  data.objective.labelled = source->has_labels();
  data.objective.metrics = TopMetrics(std::ssize(names));
  PredictNames(models::LabelNames(input.model), &data.objective);
  return data;
}

StatusOr<TaskData> OpenImageClassification(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::ImageProcessor processor,
                           data::ImageProcessor::OfModel(input.config.model, input.model));
  if (input.evaluation) return OpenForEvaluation(input, processor);
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<ImageOptions>());
  TESSERA_ASSIGN_OR_RETURN(const std::string data_path, input.OneSource());
  TESSERA_ASSIGN_OR_RETURN(data::ImageParts parts, data::FindImageParts(data_path));
  if (!config.Validation().empty()) {
    TESSERA_ASSIGN_OR_RETURN(const data::ImageParts held_out,
                             data::FindImageParts(config.Validation()));
    parts.validation = held_out.validation.empty() ? held_out.train : held_out.validation;
  }
  data::ImageClassificationOptions options = {.random_crop = keys.random_crop,
                                              .random_flip = keys.random_flip,
                                              .seed = static_cast<uint64_t>(config.seed)};
  const data::ImageColumns columns = {keys.image_column, keys.label_columns};
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const ImageSource> source,
                           ImageSource::Open(parts.train, ImageSource::Labels::kNeeded, columns));
  options.label_names = ChooseLabels(input, source->names(), &data);
  TESSERA_ASSIGN_OR_RETURN(const PictureDatasetPtr train,
                           ImageClassificationDataset::Create(source, processor, options));
  TESSERA_ASSIGN_OR_RETURN(data.objective.class_weights,
                           ClassWeights(keys.class_weights, options.label_names, train->labels()));
  data.objective.metrics = TopMetrics(std::ssize(options.label_names));
  PredictNames(NamesAfterTraining(input, data, options.label_names), &data.objective);
  data.files = {{"preprocessor_config.json", processor.config().ToJson().dump(2) + "\n"}};
  data::ImageClassificationOptions plain = options;  // evaluations see pictures as they are
  plain.random_crop = false;
  plain.random_flip = false;
  if (!parts.validation.empty()) {
    data.train = train;
    TESSERA_ASSIGN_OR_RETURN(data.validation,
                             OpenPictures(parts.validation, columns, processor, plain));
    return data;
  }
  // The last pictures are of the last class: what is held out is drawn from all of them.
  TESSERA_ASSIGN_OR_RETURN(const PictureDatasetPtr whole,
                           ImageClassificationDataset::Create(source, processor, plain));
  const data::HoldOut share = {.fraction = config.val_fraction};
  data.train = data::SplitDataset(train, share).first;
  data.validation = data::SplitDataset(whole, share).second;
  return data;
}

const TaskKind kImageClassification = {
    .name = "image_classification",
    .help = "pictures with labels, from class folders, IDX files or tables",
    .capability = models::Capability::kImageLabels,
    .fit = FitImageClassification,
    .options = &ImageOptions::Table(),
    .needs_tokenizer = false,
    .open = OpenImageClassification,
    .predicts = true};
const TaskRegistration registered_image_classification(&kImageClassification);

}  // namespace
}  // namespace tessera::train
