// DeepSpeed's ZeRO and its off-loading.
#include <optional>
#include <string>

#include "train/config/deepspeed_sections.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

void TranslateOffload(ForeignKeys& zero, int64_t stage, Json* keys) {
  std::optional<bool> offload = zero.Bool("cpu_offload");
  const bool section = zero.Has("offload_optimizer");
  ForeignKeys optimizer = zero.Section("offload_optimizer");
  const std::string device = optimizer.String("device").value_or(section ? "cpu" : "none");
  (void)optimizer.Bool("pin_memory");  // how fast copies are, not what they give
  const std::optional<double> ratio = optimizer.Number("ratio", 0);
  for (const char* key : {"nvme_path", "buffer_count", "fast_init", "pipeline_read",
                          "pipeline_write", "buffer_size"}) {
    optimizer.Refuse(key, "it belongs to off-loading to NVMe, which Tessera does not have");
  }
  optimizer.Finish();
  if (device != "cpu" && device != "none") {
    optimizer.Fail("device", Concat("is '", device, "'; states can lie in host memory ('cpu')"));
  }
  if (section && offload && *offload != (device == "cpu")) {
    zero.Fail("cpu_offload", "and 'offload_optimizer' contradict each other");
  }
  if (section) offload = device == "cpu";
  if (offload.value_or(false) && stage == 0) {
    zero.Fail(section ? "offload_optimizer" : "cpu_offload",
              "needs stage 1, 2 or 3; the stage is 0");
  }
  Put(keys, "cpu_offload", offload);
  if (offload.value_or(false)) Put(keys, "offload_fraction", ratio);
  ForeignKeys params = zero.Section("offload_param");
  const std::string place =
      params.String("device").value_or(zero.Has("offload_param") ? "cpu" : "none");
  (void)params.Bool("pin_memory");
  for (const char* key : {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu"}) {
    params.Refuse(key, "it belongs to off-loading to NVMe, which Tessera does not have");
  }
  if (place != "cpu" && place != "none") {
    params.Fail("device", Concat("is '", place, "'; parameters can lie in host memory ('cpu')"));
  }
  if (place == "cpu" && stage < 3) {
    zero.Fail("offload_param", Concat("needs stage 3; the stage is ", stage));
  }
  if (place == "cpu") (*keys)["offload_parameters"] = true;
  params.Finish();
}

// Of a stage below 3 they mean nothing, in DeepSpeed neither.
void TranslateStage3(ForeignKeys& zero, int64_t stage, Json* keys) {
  const std::optional<int64_t> prefetch = zero.Integer("stage3_prefetch_bucket_size", 0);
  const std::optional<int64_t> live = zero.Integer("stage3_max_live_parameters", 0);
  const std::optional<int64_t> persistence = zero.Integer("stage3_param_persistence_threshold", 0);
  if (stage == 3) {
    Put(keys, "prefetch_elements", prefetch);
    if (prefetch) (*keys)["limit_all_gathers"] = false;
    Put(keys, "max_live_elements", live);
    Put(keys, "persistence_threshold", persistence);
  }
  for (const char* key :
       {"stage3_max_reuse_distance", "stage3_model_persistence_threshold", "sub_group_size"}) {
    zero.Refuse(key, "it tunes DeepSpeed's own order of work; remove it");
  }
}

}  // namespace

void TranslateZero(ForeignKeys& ds, Json* keys) {
  ForeignKeys zero = ds.Section("zero_optimization");
  const int64_t stage = zero.Integer("stage", 0).value_or(0);
  if (stage > 3) zero.Fail("stage", Concat("must be 0, 1, 2 or 3, not ", stage));
  if (zero.Has("stage")) (*keys)["zero"] = stage;
  Put(keys, "overlap_comm", zero.Bool("overlap_comm"));
  const std::optional<bool> contiguous = zero.Bool("contiguous_gradients");
  // Above stage 0 gradients always lie in buckets, and their values are the same.
  if (stage == 0) Put(keys, "gradient_as_bucket_view", contiguous);
  Put(keys, "find_unused_parameters", zero.Bool("ignore_unused_parameters"));
  const std::optional<int64_t> reduce = zero.Integer("reduce_bucket_size", 1);
  const std::optional<int64_t> gather = zero.Integer("allgather_bucket_size", 1);
  // Elements, of float32 gradients.
  if (reduce) (*keys)["bucket_cap_mb"] = static_cast<double>(*reduce) * 4 / 1048576;
  if (stage > 0 && gather && gather != reduce) {
    zero.Fail("allgather_bucket_size",
              Concat("is ", *gather, ", but there is one size for both directions: ",
                     "reduce_bucket_size", reduce ? Concat(", ", *reduce) : " is not given"));
  }
  if (stage > 0) {
    zero.OnlyIf("reduce_scatter", true, "each rank takes its share of the sum only");
    zero.OnlyIf("allgather_partitions", true, "parameters are gathered, not broadcast");
  } else {  // nothing is partitioned
    (void)zero.Bool("reduce_scatter");
    (void)zero.Bool("allgather_partitions");
  }
  TranslateOffload(zero, stage, keys);
  zero.OnlyIf("round_robin_gradients", false, "shares are consecutive");
  zero.OnlyIf("grad_hooks", true, "gradients are reduced as they become complete");
  zero.OnlyIf("elastic_checkpoint", true, "checkpoints load on any number of ranks");
  zero.OnlyIf("load_from_fp32_weights", true, "master weights are saved and loaded");
  zero.OnlyIf("stage3_gather_16bit_weights_on_model_save", true, "models are saved whole");
  zero.OnlyIf("stage3_gather_fp16_weights_on_model_save", true, "models are saved whole");
  TranslateStage3(zero, stage, keys);
  for (const char* key : {"zero_hpz_partition_size", "zero_quantized_weights",
                          "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
                          "mics_shard_size", "mics_hierarchical_params_gather"}) {
    zero.OnlyDisabled(key, "ZeRO++ and MiCS are not here");
  }
  zero.Finish();
}

}  // namespace tessera::train
