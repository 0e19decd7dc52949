#include "train/config/deepspeed_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "train/config/foreign_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

template <typename T>
void Put(Json* keys, const char* key, const std::optional<T>& value) {
  if (value) (*keys)[key] = *value;
}

// --- Batches -------------------------------------------------------------------------------------

// train_batch_size = micro-batch * accumulation * ranks: of the three, two give the third.
void TranslateBatch(ForeignKeys& ds, int64_t ranks, Json* keys) {
  const std::optional<int64_t> train = ds.Integer("train_batch_size", 1);
  std::optional<int64_t> micro = ds.Integer("train_micro_batch_size_per_gpu", 1);
  std::optional<int64_t> steps = ds.Integer("gradient_accumulation_steps", 1);
  const auto ranks_by = [&](int64_t a, int64_t b) {
    return static_cast<double>(ranks) * static_cast<double>(a) * static_cast<double>(b);
  };
  if (train && micro && steps && static_cast<double>(*train) != ranks_by(*micro, *steps)) {
    ds.Fail("train_batch_size",
            Concat("is ", *train, ", but train_micro_batch_size_per_gpu * ",
                   "gradient_accumulation_steps * ranks is ", *micro, " * ", *steps, " * ", ranks));
  }
  if (train && !(micro && steps)) {
    const double known = ranks_by(micro.value_or(1), steps.value_or(1));
    if (std::fmod(static_cast<double>(*train), known) != 0) {
      const char* other = micro ? " of train_micro_batch_size_per_gpu * ranks"
                                : " of gradient_accumulation_steps * ranks";
      ds.Fail("train_batch_size", Concat("is ", *train, ", which is not a multiple",
                                         micro || steps ? other : " of the ranks", ", ", known));
    }
    (micro ? steps : micro) = static_cast<int64_t>(static_cast<double>(*train) / known);
  }
  if (micro && !steps) steps = 1;
  Put(keys, "batch_size", micro);
  Put(keys, "gradient_accumulation_steps", steps);
}

// --- Number formats ------------------------------------------------------------------------------

// Whether fp16 is enabled, where that is said.
std::optional<bool> TranslateFp16(ForeignKeys fp16, Json* keys) {
  const std::optional<bool> enabled = fp16.Bool("enabled");
  const std::optional<double> scale = fp16.Number("loss_scale", 0);
  const std::optional<int64_t> power = fp16.Integer("initial_scale_power", 0);
  const std::optional<int64_t> window = fp16.Integer("loss_scale_window", 1);
  const std::optional<int64_t> hysteresis = fp16.Integer("hysteresis", 1);
  const std::optional<double> least = fp16.Number("min_loss_scale", 0);
  fp16.OnlyIf("auto_cast", false, "batches are cast where the model needs it");
  fp16.OnlyIf("consecutive_hysteresis", false,
              "hysteresis is renewed when the scale grows, not at each good step");
  fp16.OnlyIf("fp16_master_weights_and_grads", false, "master weights are float32");
  if (scale && *scale > 0) {
    for (const auto& [key, given] : {std::pair{"loss_scale_window", window.has_value()},
                                     {"hysteresis", hysteresis.has_value()},
                                     {"min_loss_scale", least.has_value()},
                                     {"initial_scale_power", power.has_value()}}) {
      if (given) {
        fp16.Fail(key, Concat("belongs to dynamic loss scaling, but loss_scale is fixed at ",
                              *scale, "; remove it, or set loss_scale to 0"));
      }
    }
  }
  if (power && *power > 64) fp16.Fail("initial_scale_power", "must be at most 64");
  fp16.Finish();
  if (scale && *scale > 0) (*keys)["loss_scale"] = *scale;  // 0: dynamic
  Put(keys, "growth_interval", window);
  Put(keys, "hysteresis", hysteresis);
  // A least scale of 0 is no bound; scales are positive here.
  if (least && *least > 0) (*keys)["min_scale"] = *least;
  if (power) {
    const double first = std::ldexp(1.0, static_cast<int>(*power));
    (*keys)["initial_scale"] = first;
    if (first > 4294967296.0) (*keys)["max_scale"] = first;
  }
  return enabled;
}

void TranslateDType(ForeignKeys& ds, Json* keys) {
  const std::optional<bool> fp16 = TranslateFp16(ds.Section("fp16"), keys);
  const char* name = ds.Has("bf16") ? "bf16" : "bfloat16";
  if (ds.Has("bf16") && ds.Has("bfloat16")) {
    ds.Fail("bfloat16", "is another name of 'bf16'; give one of them");
  }
  for (const char* either : {"bf16", "bfloat16"}) {
    if (either != name) (void)ds.Section(either);
  }
  ForeignKeys section = ds.Section(name);
  const std::optional<bool> bf16 = section.Bool("enabled");
  section.OnlyIf("immediate_grad_update", true, "gradients are added as they come");
  section.OnlyIf("check_grad_overflow", false, "bfloat16 has the range of float32");
  section.OnlyIf("bf16_master_weights_and_grads", false, "master weights are float32");
  section.Finish();
  if (fp16.value_or(false) && bf16.value_or(false)) {
    ds.Fail(name, "and 'fp16' are both enabled; a run has one dtype");
  }
  if (fp16.value_or(false)) {
    (*keys)["dtype"] = "float16";
  } else if (bf16.value_or(false)) {
    (*keys)["dtype"] = "bfloat16";
  } else if (fp16 || bf16) {
    (*keys)["dtype"] = "float32";
  }
  ForeignKeys types = ds.Section("data_types");
  types.OnlyIf("grad_accum_dtype", "fp32", "gradients are accumulated in float32");
  types.Finish();
}

// --- Optimizer -----------------------------------------------------------------------------------

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What a parameter that is not given is to its constructor, which "auto" leaves to Tessera.
void Default(const ForeignKeys& params, const char* theirs, const char* ours, const Json& value,
             Json* keys) {
  if (!params.Has(theirs)) (*keys)[ours] = value;
}

void TranslateAdam(ForeignKeys& params, bool always_decoupled, Json* keys) {
  const bool decoupled = params.Bool("adam_w_mode").value_or(true);
  (*keys)["optimizer"] = decoupled || always_decoupled ? "adamw" : "adam";
  if (always_decoupled && !decoupled) {
    params.Fail("adam_w_mode", "is false, but the type is AdamW");
  }
  (void)params.Bool("torch_adam");  // two implementations of one optimizer
  const std::optional<std::vector<double>> betas = params.Numbers("betas");
  if (betas && betas->size() != 2) params.Fail("betas", "must be two numbers");
  Put(keys, "betas", betas);
  Put(keys, "eps", params.Number("eps", 0));
  Default(params, "betas", "betas", {0.9, 0.999}, keys);
  Default(params, "eps", "eps", 1e-8, keys);
  params.OnlyIf("bias_correction", true, "Adam corrects its moments");
  params.OnlyIf("amsgrad", false, "there is no AMSGrad");
}

void TranslateSgd(ForeignKeys& params, Json* keys) {
  (*keys)["optimizer"] = "sgd";
  Put(keys, "momentum", params.Number("momentum", 0));
  Default(params, "momentum", "momentum", 0.0, keys);
  params.OnlyIf("dampening", 0, "momentum is not damped");
  params.OnlyIf("nesterov", false, "momentum is not Nesterov's");
}

void TranslateOptimizer(ForeignKeys& ds, Json* keys) {
  const bool given = ds.Has("optimizer");
  ForeignKeys optimizer = ds.Section("optimizer");
  const std::optional<std::string> type = optimizer.String("type");
  ForeignKeys params = optimizer.Section("params");
  optimizer.OnlyIf("legacy_fusion", false, "there is one implementation");
  optimizer.Finish();
  if (!type) {
    if (given && !optimizer.Has("type")) ds.Fail("optimizer", "has no type");
    params.Finish();
    return;
  }
  const std::string name = LowerCase(*type);
  if (name == "adam" || name == "adamw") {
    TranslateAdam(params, name == "adamw", keys);
  } else if (name == "sgd") {
    TranslateSgd(params, keys);
  } else {
    optimizer.Fail("type", Concat("is '", *type, "', which Tessera does not have; use Adam, AdamW ",
                                  "or SGD"));
    return;
  }
  Put(keys, "lr", params.Number("lr", 0));
  Put(keys, "weight_decay", params.Number("weight_decay", 0));
  Default(params, "lr", "lr", 1e-3, keys);
  Default(params, "weight_decay", "weight_decay", 0.0, keys);
  params.Refuse("max_grad_norm", "clipping is set by 'gradient_clipping'");
  params.Finish();
}

// --- Scheduler -----------------------------------------------------------------------------------

// The warm-up of all three schedules. DeepSpeed's own default is logarithmic.
void TranslateWarmup(ForeignKeys& params, const char* least, Json* keys) {
  const std::string type = params.String("warmup_type").value_or("log");
  if (type != "linear") {
    params.Fail("warmup_type",
                type == "log" ? "is 'log' (DeepSpeed's default): the rate then rises with the "
                                "logarithm of the step, but Tessera's warm-up is linear; set it "
                                "to 'linear'"
                              : "must be 'linear'");
  }
  if (params.Number(least, 0).value_or(0) != 0) {
    params.Fail(least, "is not 0, but Tessera's warm-up begins at 0");
  }
  const std::optional<int64_t> steps = params.Integer("warmup_num_steps", 1);
  if (steps) (*keys)["warmup_steps"] = *steps;
  Default(params, "warmup_num_steps", "warmup_steps", 1000, keys);
  params.OnlyIf("last_batch_iteration", -1, "a resumed run continues at its step");
}

void TranslateScheduler(ForeignKeys& ds, Json* keys) {
  const bool given = ds.Has("scheduler");
  ForeignKeys scheduler = ds.Section("scheduler");
  const std::optional<std::string> type = scheduler.String("type");
  ForeignKeys params = scheduler.Section("params");
  scheduler.Finish();
  if (!type) {
    if (given && !scheduler.Has("type")) ds.Fail("scheduler", "has no type");
    params.Finish();
    return;
  }
  if (*type == "WarmupLR" || *type == "WarmupDecayLR") {
    const bool decays = *type == "WarmupDecayLR";
    (*keys)["lr_schedule"] = decays ? "linear" : "constant";
    TranslateWarmup(params, "warmup_min_lr", keys);
    Put(keys, "lr", params.Number("warmup_max_lr", 0));
    if (decays) {
      Default(params, "warmup_max_lr", "lr", 1e-3, keys);
      (*keys)["min_lr"] = 0.0;
    }
  } else if (*type == "WarmupCosineLR") {
    (*keys)["lr_schedule"] = "cosine";
    TranslateWarmup(params, "warmup_min_ratio", keys);
    const double ratio = params.Number("cos_min_ratio", 0).value_or(1e-4);
    if (ratio > 1) params.Fail("cos_min_ratio", "must be at most 1");
    if (keys->contains("lr")) {
      (*keys)["min_lr"] = ratio * (*keys)["lr"].get<double>();
    } else {
      params.Fail("cos_min_ratio", "is a share of the optimizer's lr, which is not given");
    }
  } else {
    const char* why = *type == "LRRangeTest" || *type == "OneCycle"
                          ? ", whose shape Tessera's schedules do not have"
                          : ", which is not known";
    scheduler.Fail(
        "type", Concat("is '", *type, "'", why, "; use WarmupLR, WarmupDecayLR or WarmupCosineLR"));
    return;
  }
  if (*type != "WarmupLR") {
    if (!params.Has("total_num_steps")) params.Fail("total_num_steps", "is missing");
    Put(keys, "max_steps", params.Integer("total_num_steps", 1));
  }
  params.Finish();
}

// --- ZeRO ----------------------------------------------------------------------------------------

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

// --- The rest ------------------------------------------------------------------------------------

void TranslateActivationCheckpointing(ForeignKeys& ds, Json* keys) {
  ForeignKeys section = ds.Section("activation_checkpointing");
  const bool partition = section.Bool("partition_activations").value_or(false);
  const bool contiguous = section.Bool("contiguous_memory_optimization").value_or(false);
  if (contiguous && !partition) {
    section.Fail("contiguous_memory_optimization", "needs partition_activations");
  }
  const bool offload = section.Bool("cpu_checkpointing").value_or(false);
  section.OnlyIf("synchronize_checkpoint_boundary", false, "there is nothing to synchronise");
  section.OnlyIf("profile", false, "use wall_clock_breakdown");
  section.Refuse("number_checkpoints", "every block of the model is one");
  section.Finish();
  if (partition || offload) (*keys)["checkpoint_activations"] = true;
  if (offload) (*keys)["offload_activations"] = true;
}

void RefuseFeatures(ForeignKeys& ds) {
  ds.OnlyIf("prescale_gradients", false, "gradients are divided once, by the targets of the step");
  ds.OnlyIf("gradient_predivide_factor", 1, "gradients are divided once");
  ds.OnlyIf("sparse_gradients", false, "gradients of embeddings are dense");
  ds.OnlyIf("dump_state", false, "the resolved configuration is always printed");
  ds.OnlyIf("memory_breakdown", false, "metrics have the peak memory of every row");
  ds.OnlyIf("disable_allgather", false, "parameters are gathered");
  ds.OnlyIf("zero_force_ds_cpu_optimizer", true, "there is one optimizer for every device");
  ds.OnlyIf("use_data_before_expert_parallelism", false, "there are no experts");
  ds.OnlyIf("dataloader_drop_last", false, "the last batch of an epoch is used");
  for (const char* key : {"tensorboard", "wandb", "csv_monitor", "comet"}) {
    ds.OnlyDisabled(key, "metrics go to <out>/metrics.jsonl");
  }
  for (const char* key : {"flops_profiler", "comms_logger"}) {
    ds.OnlyDisabled(key, "use wall_clock_breakdown");
  }
  const std::pair<const char*, const char*> kAbsent[] = {
      {"amp", "use fp16 or bf16"},
      {"aio", "Tessera does not off-load to NVMe"},
      {"autotuning", "Tessera does not tune itself"},
      {"elasticity", "the number of ranks is fixed during a run; a checkpoint loads on any"},
      {"sparse_attention", "attention is dense"},
      {"curriculum_learning", "the order of data is a permutation"},
      {"data_efficiency", "the order of data is a permutation"},
      {"progressive_layer_drop", "every layer is trained"},
      {"eigenvalue", "it serves quantisation, which is not here"},
      {"quantize_training", "quantised training is not here"},
      {"compression_training", "compression is not here"},
      {"hybrid_engine", "it serves reinforcement learning, which is not here"},
      {"pipeline", "use Tessera's pp and schedule"},
      {"tensor_parallel", "use Tessera's tp"},
      {"sequence_parallel_size", "use Tessera's sequence_parallel"},
      {"checkpoint", "checkpoints always load into any layout, and ranks write in parallel"},
      {"nebula", "use Tessera's async_save"},
      {"vocabulary_size", "it belongs to the model"},
  };
  for (const auto& [key, reason] : kAbsent) ds.OnlyDisabled(key, reason);
}

}  // namespace

StatusOr<Json> TranslateDeepSpeedConfig(const Json& json, const std::string& source,
                                        int world_size) {
  Status status;
  Json keys = Json::object();
  ForeignKeys ds(json, source, "", &status);
  TranslateBatch(ds, world_size, &keys);
  TranslateDType(ds, &keys);
  TranslateOptimizer(ds, &keys);
  TranslateScheduler(ds, &keys);
  TranslateZero(ds, &keys);
  TranslateActivationCheckpointing(ds, &keys);
  const std::optional<std::string> travels = ds.String("communication_data_type");
  if (travels && keys.value("zero", 0) > 0) {
    keys["communication_dtype"] = *travels;
  } else if (travels && *travels != "fp32") {
    ds.Fail("communication_data_type",
            Concat("is '", *travels, "', which needs ZeRO stage 1 to 3"));
  }
  Put(&keys, "log_interval", ds.Integer("steps_per_print", 1));
  Put(&keys, "max_grad_norm", ds.Number("gradient_clipping", 0));
  Put(&keys, "wall_clock_breakdown", ds.Bool("wall_clock_breakdown"));
  Put(&keys, "seed", ds.Integer("seed", 0));
  (void)ds.Bool("zero_allow_untested_optimizer");  // ZeRO serves every optimizer
  (void)ds.Bool("fp32_allreduce");                 // sums of half precision go through float32
  RefuseFeatures(ds);
  ds.Finish();
  TESSERA_RETURN_IF_ERROR(status);
  return keys;
}

}  // namespace tessera::train
