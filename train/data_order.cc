#include "train/data_order.h"

#include "data/dataset/dataset.h"

namespace tessera::train {

data::SamplerOptions DataOrder(const RunConfig& config, int64_t num_samples,
                               const dist::Mesh& mesh) {
  data::SamplerOptions order = {
      .num_samples = num_samples,
      .batch_size = config.batch_size,
      .micro_batches = config.accumulation_steps(),
      .seed = static_cast<uint64_t>(config.data_seed.value_or(config.seed)),
      .shuffle = config.shuffle && num_samples != data::kUnknownSize};
  const int64_t step = order.batch_size * order.micro_batches * mesh.dp()->size();
  if (config.drop_last && num_samples > step) order.samples_per_epoch = num_samples / step * step;
  return order;
}

}  // namespace tessera::train
