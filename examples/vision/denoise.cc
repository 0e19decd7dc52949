// SPDX-License-Identifier: Apache-2.0
// Teaches a U-Net to take noise out of pictures, in a loop of its own:
//
//   denoise PICTURES STEPS          # class folders or IDX files, as `train` takes them
//
// Prints the mean squared error of what is left of the noise every 20 steps; the noise's own is
// 0.25. The pictures become grey and 32 x 32.
#include <cstdlib>
#include <iostream>
#include <string>

#include <tessera/core/batch_keys.h>
#include <tessera/data/classification/image_classification_dataset.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/random/random.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/optim/adam/adam.h>
#include <tessera/optim/modules/module_parameters.h>

#include "examples/vision/unet.h"

namespace tessera::examples {
namespace {

using data::ImageClassificationDataset;
using DatasetPtr = std::shared_ptr<const ImageClassificationDataset>;

StatusOr<DatasetPtr> OpenPictures(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const data::ImageParts parts, data::FindImageParts(path));
  TESSERA_ASSIGN_OR_RETURN(const auto source, data::ImageSource::Open(parts.train));
  TESSERA_ASSIGN_OR_RETURN(
      const data::ImageProcessor processor,
      data::ImageProcessor::Create({.height = 32, .width = 32}, /*channels=*/1, path));
  return ImageClassificationDataset::Create(source, processor, {});
}

// Pictures drawn at random, those of one step.
StatusOr<Tensor> Draw(const ImageClassificationDataset& pictures, const RandomKey& key) {
  constexpr int64_t kPictures = 16;
  std::vector<data::Sample> samples;
  for (int64_t i = 0; i < kPictures; ++i) {
    const uint64_t number = RandomBits(key, static_cast<uint64_t>(i));
    samples.push_back({static_cast<int64_t>(number % static_cast<uint64_t>(pictures.size())), i});
  }
  TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, pictures.MakeBatch(samples));
  return batch.at(keys::kPixelValues);
}

Status Run(const std::string& path, int64_t steps) {
  TESSERA_ASSIGN_OR_RETURN(const DatasetPtr pictures, OpenPictures(path));
  UNet net({.channels = 1, .width = 16}, nn::Scope::Root({.seed = 1}));
  optim::AdamW optimizer({{.parameters = optim::ParametersOf(net)}}, {.lr = 2e-3});
  double sum = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    const RandomKey key = RandomKey::FromSeed(1).With(static_cast<uint64_t>(step));
    TESSERA_ASSIGN_OR_RETURN(const Tensor clean, Draw(*pictures, key.With("pictures")));
    const Tensor noise = 0.5 * Randn(clean.shape(), key.With("noise"));
    const Tensor loss = Mean(Square(net.Forward(clean + noise) - noise));
    Backward(loss);
    optimizer.Step();
    optimizer.ZeroGrad();
    sum += loss.Item();
    if (step % 20 != 0) continue;
    std::cout << "step " << step << "  loss " << sum / 20 << std::endl;
    sum = 0;
  }
  return OkStatus();
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  if (argc != 3 || std::atoll(argv[2]) < 1) {
    std::cerr << "error: usage: denoise PICTURES STEPS\n";
    return 2;
  }
  const tessera::Status status = tessera::examples::Run(argv[1], std::atoll(argv[2]));
  if (!status.ok()) std::cerr << "error: " << tessera::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
