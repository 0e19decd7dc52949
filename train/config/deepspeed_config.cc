#include "train/config/deepspeed_config.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "train/config/deepspeed_sections.h"
#include "train/config/foreign_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

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
