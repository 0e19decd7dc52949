// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a Vision Transformer on a folder of class folders with a booster: any plugin, any
// layout, the same loop (Colossal-AI's tutorial of ViT under hybrid parallelism).
//
//   mpirun -n 4 vit_hybrid_parallel --data beans --model vit-base-patch16-224-in21k --out trained
//       --plugin hybrid_parallel --tp_size 2 --pp_size 2 --num_microbatches 4 --num_epoch 3
#include <cmath>
#include <string>

#include <tessera/autograd/autograd.h>
#include <tessera/base/file.h>
#include <tessera/data/classification/image_classification_dataset.h>
#include <tessera/data/classification/image_source.h>
#include <tessera/data/dataset/sampler.h>
#include <tessera/data/image/image_processor.h>
#include <tessera/models/classification.h>
#include <tessera/models/hub/load_model.h>
#include <tessera/models/model_keys.h>
#include <tessera/ops/cross_entropy/cross_entropy.h>
#include <tessera/train/boost/booster.h>
#include <tessera/train/boost/coordinator.h>

#include "examples/flows/flow_main.h"
#include "nlohmann/json.hpp"

namespace tessera::flows {
namespace {

using train::Boosted;
using train::Booster;
using train::Coordinator;
using train::Plugin;

struct Flags {
  std::string data;
  std::string model = "vit-base-patch16-224";
  std::string out;
  std::string plugin = "hybrid_parallel";
  std::string precision = "fp16";
  int64_t tp_size = 1;
  int64_t pp_size = 1;
  int64_t num_microbatches = 1;
  int64_t num_epoch = 3;
  int64_t batch_size = 32;
  double learning_rate = 3e-4;
  double warmup_ratio = 0.3;
  double weight_decay = 0.1;
  int64_t seed = 42;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Flags>("ViT with a booster")
            .Add("data", &Flags::data, "folder with `train` and `val`, each of class folders")
            .Add("model", &Flags::model, "a preset or a Hugging Face folder")
            .Add("out", &Flags::out, "where the trained model goes")
            .Add("plugin", &Flags::plugin, "how ranks share the work",
                 {.choices = {"torch_ddp", "low_level_zero", "gemini", "hybrid_parallel"}})
            .Add("precision", &Flags::precision, "of the parameters")
            .Add("tp_size", &Flags::tp_size, "tensor-parallel ranks", {.least = 1})
            .Add("pp_size", &Flags::pp_size, "pipeline stages", {.least = 1})
            .Add("num_microbatches", &Flags::num_microbatches, "of a pipeline's step", {.least = 1})
            .Add("num_epoch", &Flags::num_epoch, "passes over the data", {.least = 1})
            .Add("batch_size", &Flags::batch_size, "pictures of a data-parallel rank", {.least = 1})
            .Add("learning_rate", &Flags::learning_rate, "at its peak", {.least = 0})
            .Add("warmup_ratio", &Flags::warmup_ratio, "of all steps", {.least = 0, .most = 1})
            .Add("weight_decay", &Flags::weight_decay, "of matrices", {.least = 0})
            .Add("seed", &Flags::seed, "of data order and new weights", {.least = 0}));
    return *table;
  }
};

Plugin PluginOf(const Flags& flags) {
  if (flags.plugin == "torch_ddp") return train::DataParallelPlugin{};
  if (flags.plugin == "low_level_zero") {
    return train::LowLevelZeroPlugin{.precision = flags.precision};
  }
  if (flags.plugin == "gemini") {
    return train::GeminiPlugin{.offload_optim_frac = 1, .precision = flags.precision};
  }
  train::HybridParallelPlugin hybrid = {
      .tp_size = flags.tp_size, .pp_size = flags.pp_size, .precision = flags.precision};
  if (flags.pp_size > 1) hybrid.num_microbatches = flags.num_microbatches;
  return hybrid;
}

using Pictures = std::shared_ptr<const data::ImageClassificationDataset>;

// Pictures prepared as the model wants them; `names`: the classes that there may be.
StatusOr<Pictures> OpenPictures(const std::string& path, const std::string& model,
                                const nlohmann::json& config,
                                const std::vector<std::string>& names) {
  TESSERA_ASSIGN_OR_RETURN(const auto processor, data::ImageProcessor::OfModel(model, config));
  TESSERA_ASSIGN_OR_RETURN(const auto source, data::ImageSource::Open(path));
  return data::ImageClassificationDataset::Create(source, processor, {.label_names = names});
}

// The share of pictures whose class the model finds, all of them on every rank.
StatusOr<double> Evaluate(const train::BoostedModel& model, const data::Dataset& pictures,
                          int64_t batch_size) {
  const NoGrad no_grad;
  const data::Sampler in_order({.num_samples = pictures.size(),
                                .batch_size = batch_size,
                                .shuffle = false,
                                .end_position = pictures.size()});
  int64_t right = 0;
  for (int64_t i = 0; i * batch_size < pictures.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const data::Batch batch,
                             pictures.MakeBatch(in_order.Rows({.step = i})));
    const Tensor logits = CastCopy(model(batch.tensors).at(keys::kLogits), DType::kFloat32);
    const std::vector<float> scores = CopyTo(logits, Device::Cpu()).ToVector<float>();
    const std::vector<int64_t> labels = batch.at(keys::kLabels).ToVector<int64_t>();
    const auto classes = static_cast<int64_t>(scores.size() / labels.size());
    for (size_t row = 0; row < labels.size(); ++row) {
      const auto first = scores.begin() + static_cast<int64_t>(row) * classes;
      right += std::max_element(first, first + classes) - first == labels[row] ? 1 : 0;
    }
  }
  return static_cast<double>(right) / static_cast<double>(pictures.size());
}

Tensor LossOf(const models::Bundle& outputs, const models::Bundle& batch) {
  return CrossEntropy(outputs.at(keys::kLogits), batch.at(keys::kLabels),
                      {.reduction = LossReduction::kMean});
}

// The mean loss of this rank's batches.
StatusOr<double> TrainEpoch(const Booster& booster, Boosted& boosted, int64_t steps) {
  auto& [model, optimizer, criterion, loader, schedule] = boosted;
  double sum = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (booster.mesh().pp()->size() > 1) {
      TESSERA_ASSIGN_OR_RETURN(
          const dist::PipelineOutput output,
          booster.ExecutePipeline([&] { return loader->Next(); }, model, criterion, optimizer));
      sum += output.loss;
    } else {
      TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader->Next());
      const models::Bundle there = OnDevice(batch.tensors, model.module().build().device);
      const Tensor loss = criterion(model(there), there);
      booster.Backward(loss, optimizer);
      sum += loss.Item();
    }
    optimizer.Step();
    optimizer.ZeroGrad();
    schedule.Step();
  }
  return sum / static_cast<double>(steps);
}

Status Train(const Flags& flags, const dist::World& world) {
  const Coordinator coordinator(world.communicator);
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, models::ReadModelConfig(flags.model));
  TESSERA_ASSIGN_OR_RETURN(const data::ImageParts parts, data::FindImageParts(flags.data));
  TESSERA_ASSIGN_OR_RETURN(const Pictures pictures,
                           OpenPictures(parts.train, flags.model, config, {}));
  TESSERA_ASSIGN_OR_RETURN(const Pictures held_out, OpenPictures(parts.validation, flags.model,
                                                                 config, pictures->label_names()));

  // A new head for these classes on whatever weights there are.
  nlohmann::json changes = {{"architectures", {"ViTForImageClassification"}}};
  models::SetLabels(pictures->label_names(), &changes);
  const auto build = [&](const nn::BuildContext& context) {
    return models::LoadModel(
        flags.model,
        {.build = context, .config_changes = changes, .ignore_mismatched_sizes = true});
  };

  const bool hybrid = flags.plugin == "hybrid_parallel";
  const int64_t data_ranks = world.size / (hybrid ? flags.tp_size * flags.pp_size : 1);
  const int64_t steps =
      (pictures->size() + flags.batch_size * data_ranks - 1) / (flags.batch_size * data_ranks);
  const int64_t total_steps = steps * flags.num_epoch;
  const auto warmup_steps = static_cast<int64_t>(flags.warmup_ratio * double(total_steps));

  Booster booster(
      PluginOf(flags),
      {.world = world.communicator, .device = world.device, .run = {{"seed", flags.seed}}});
  TESSERA_ASSIGN_OR_RETURN(
      Boosted boosted,
      booster.Boost(
          build,
          {.name = "HybridAdam", .lr = flags.learning_rate, .weight_decay = flags.weight_decay},
          LossOf,
          {.dataset = pictures.get(),
           .batch_size = flags.batch_size,
           .seed = static_cast<uint64_t>(flags.seed)},
          optim::CosineAnnealingWarmupLR(flags.learning_rate, total_steps, warmup_steps)));
  coordinator.PrintOnMaster(
      Concat(pictures->size(), " pictures of ", pictures->label_names().size(), " classes on ",
             world.size, " ranks: dp ", booster.mesh().dp()->size(), ", tp ",
             booster.mesh().tp()->size(), ", pp ", booster.mesh().pp()->size()));

  for (int64_t epoch = 1; epoch <= flags.num_epoch; ++epoch) {
    TESSERA_ASSIGN_OR_RETURN(const double loss, TrainEpoch(booster, boosted, steps));
    TESSERA_ASSIGN_OR_RETURN(const double accuracy,
                             Evaluate(boosted.model, *held_out, flags.batch_size));
    // One rank has the loss under every layout, and shows it.
    if (booster.mesh().prints()) {
      std::printf("epoch %d: loss %.4f, accuracy %.4f\n", static_cast<int>(epoch), loss, accuracy);
      std::fflush(stdout);
    }
  }
  return flags.out.empty() ? OkStatus() : booster.SaveModel(boosted.model, flags.out);
}

}  // namespace
}  // namespace tessera::flows

int main(int argc, char** argv) {
  return tessera::flows::FlowMain<tessera::flows::Flags>(argc, argv, tessera::flows::Train);
}
