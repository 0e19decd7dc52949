// SPDX-License-Identifier: Apache-2.0
#include "train/run/data_order.h"

#include "base/error.h"

namespace tessera::train {
namespace {

// Hugging Face's number: so many that steps differ, so few that the data are shuffled nevertheless.
constexpr int64_t kStepsOfLikeLengths = 50;

}  // namespace

data::SamplerOptions DataOrder(const RunConfig& config, const data::Dataset* dataset,
                               const dist::Mesh& mesh, const data::DataPosition& begin,
                               int64_t length_group) {
  const int64_t num_samples = dataset == nullptr ? 1 : dataset->size();
  data::SamplerOptions order = {
      .num_samples = num_samples,
      .batch_size = config.batch_size,
      .micro_batches = config.accumulation_steps(),
      .seed = static_cast<uint64_t>(config.data_seed.value_or(config.seed)),
      .shuffle = config.shuffle && num_samples != data::kUnknownSize,
      .begin = begin,
      .steps_end_with_epochs = !config.join_epochs && num_samples != data::kUnknownSize};
  const int64_t step = order.batch_size * order.micro_batches * mesh.data_ranks();
  // Where an epoch ends with a step that may be shorter, whole micro-batches of all ranks are
  // enough.
  const int64_t whole = order.steps_end_with_epochs ? order.batch_size * mesh.data_ranks() : step;
  if (config.drop_last && num_samples > whole) {
    order.samples_per_epoch = num_samples / whole * whole;
    order.left_in_epoch = (num_samples - begin.index) / whole * whole;
  }
  if (config.group_by_length && dataset != nullptr) {
    TESSERA_CHECK(num_samples != data::kUnknownSize && dataset->length_of(0), "DataOrder",
                  "group_by_length is set, but the samples have no lengths");
    order.length_of = [dataset](int64_t index) { return *dataset->length_of(index); };
    order.length_group = length_group > 0 ? length_group : kStepsOfLikeLengths * step;
  }
  return order;
}

}  // namespace tessera::train
