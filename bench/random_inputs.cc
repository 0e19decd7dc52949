// SPDX-License-Identifier: Apache-2.0
#include "bench/random_inputs.h"

#include <algorithm>
#include <string>

#include "core/random.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

Tensor RandomIds(const Shape& shape, int64_t vocab, uint64_t seed) {
  const Tensor ids = Empty(shape, DType::kInt64);
  const RandomKey key = NoiseKey(seed, "ids", 0, 0);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const double u = UniformFloat(key, static_cast<uint64_t>(i));
    ids.data<int64_t>()[i] =
        std::min(vocab - 1, static_cast<int64_t>(u * static_cast<double>(vocab)));
  }
  return ids;
}

}  // namespace

models::Bundle RandomInputs(const models::Model& model, int64_t batch, int64_t tokens) {
  const std::string type = model.config().at("model_type").get<std::string>();
  if (type == "vit" || type == "torchvision-resnet") {
    const auto& config = model.config();
    const auto size = [&](const char* key) { return config.at(key).get<int64_t>(); };
    const Tensor pixels = Empty(
        {batch, size("num_channels"), size("image_size"), size("image_size")}, DType::kFloat32);
    FillNormal(pixels.data<float>(), pixels.numel(), NoiseKey(3, "pixels", 0, 0), 0, {});
    return {{keys::kPixelValues, pixels}, {keys::kLabels, RandomIds({batch}, 10, 2)}};
  }
  const Tensor ids = RandomIds({batch, tokens}, model.vocab_size(), 1);
  if (type == "t5") {
    const Shape targets = {batch, std::max<int64_t>(1, tokens / 4)};
    return {{keys::kInputIds, ids}, {keys::kLabels, RandomIds(targets, model.vocab_size(), 2)}};
  }
  const Tensor targets = RandomIds({batch, tokens}, model.vocab_size(), 2);
  if (type != "bert" && type != "roberta")
    return {{keys::kInputIds, ids}, {keys::kTargets, targets}};
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (i % 7 != 0) targets.data<int64_t>()[i] = -100;
  }
  return {{keys::kInputIds, ids}, {keys::kLabels, targets}};
}

}  // namespace tessera
