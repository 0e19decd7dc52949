#include "dist/zero/zero_options.h"

#include <algorithm>
#include <cctype>

#include "core/nearest_name.h"

namespace tessera::dist {
namespace {

using nlohmann::json;

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

const char* const kKeys[] = {"stage",
                             "overlap_comm",
                             "reduce_bucket_size",
                             "allgather_bucket_size",
                             "contiguous_gradients",
                             "reduce_scatter",
                             "allgather_partitions",
                             "stage3_prefetch_bucket_size",
                             "stage3_max_live_parameters",
                             "stage3_param_persistence_threshold",
                             "stage3_max_reuse_distance",
                             "stage3_gather_16bit_weights_on_model_save",
                             "stage3_gather_fp16_weights_on_model_save",
                             "sub_group_size",
                             "offload_optimizer",
                             "offload_param",
                             "cpu_offload",
                             "cpu_offload_params",
                             "round_robin_gradients",
                             "load_from_fp32_weights",
                             "elastic_checkpoint",
                             "ignore_unused_parameters"};

// Reads keys of one object; the first that does not fit is kept as the error.
class Reader {
 public:
  Reader(std::string source, const json& object) : source_(std::move(source)), object_(object) {}

  const absl::Status& status() const { return status_; }
  bool has(const char* key) const { return object_.contains(key); }

  template <typename... Parts>
  void Refuse(const char* key, Parts... parts) {
    if (status_.ok()) status_ = InvalidArgument(source_, ": '", key, "' ", parts...);
  }
  bool Bool(const char* key, bool value) {
    if (!has(key)) return value;
    if (!object_[key].is_boolean()) {
      Refuse(key, "must be true or false, not ", object_[key].dump());
      return value;
    }
    return object_[key].get<bool>();
  }
  // Whole, also when written as 5e8.
  int64_t Count(const char* key, int64_t value, int64_t least) {
    if (!has(key)) return value;
    const json& found = object_[key];
    const double number = found.is_number() ? found.get<double>() : -1;
    if (number < static_cast<double>(least) || number > 9e15 ||
        number != static_cast<double>(static_cast<int64_t>(number))) {
      Refuse(key, "must be a whole number of at least ", least, ", not ", found.dump());
      return value;
    }
    return static_cast<int64_t>(number);
  }
  // What can only be had one way.
  void Only(const char* key, bool value, const char* why) {
    if (Bool(key, value) != value) {
      Refuse(key, "can only be ", value ? "true" : "false", ": ", why);
    }
  }
  // {"device": "cpu" | "none", "pin_memory": ..., "ratio": ...}
  bool Offloads(const char* key, double* ratio) {
    if (!has(key)) return false;
    const json& object = object_[key];
    if (!object.is_object()) {
      Refuse(key, "must be an object with 'device', not ", object.dump());
      return false;
    }
    for (const auto& [name, value] : object.items()) {
      if (name == "device") {
        if (value != "cpu" && value != "none") {
          Refuse(key, "has the device ", value.dump(), "; \"cpu\" and \"none\" can be had");
        }
      } else if (name == "pin_memory") {
        if (!value.is_boolean()) Refuse(key, "has 'pin_memory' ", value.dump());
      } else if (name == "ratio" && ratio != nullptr) {
        if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1) {
          Refuse(key, "has 'ratio' ", value.dump(), ", not a number from 0 to 1");
        } else {
          *ratio = value.get<double>();
        }
      } else {
        Refuse(key, "has '", name, "', which is not supported");
      }
    }
    return status_.ok() && object.value("device", std::string("cpu")) == "cpu";
  }

 private:
  const std::string source_;
  const json& object_;
  absl::Status status_;
};

void ReadOffload(Reader* reader, ZeroOptions* options) {
  options->offload_optimizer = reader->Offloads("offload_optimizer", &options->offload_fraction) ||
                               reader->Bool("cpu_offload", options->offload_optimizer);
  options->offload_parameters = reader->Offloads("offload_param", nullptr) ||
                                reader->Bool("cpu_offload_params", options->offload_parameters);
}

void ReadStage3(Reader* reader, ZeroOptions* options) {
  if (reader->has("stage3_prefetch_bucket_size")) {
    options->prefetch_elements =
        reader->Count("stage3_prefetch_bucket_size", options->prefetch_elements, 0);
    options->limit_all_gathers = false;
    options->forward_prefetch = options->prefetch_elements > 0;
    if (options->prefetch_elements == 0) options->backward_prefetch = BackwardPrefetch::kNone;
  }
  options->max_live_elements =
      reader->Count("stage3_max_live_parameters", options->max_live_elements, 1);
  options->persistence_threshold =
      reader->Count("stage3_param_persistence_threshold", options->persistence_threshold, 0);
  if (reader->Count("stage3_max_reuse_distance", 0, 0) != 0) {
    reader->Refuse("stage3_max_reuse_distance",
                   "is not supported: parameters are released after each use; use "
                   "stage3_param_persistence_threshold for those that are to stay");
  }
  for (const char* key :
       {"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"}) {
    reader->Only(key, true, "a saved model is always whole");
  }
}

}  // namespace

absl::Status ZeroOptions::Validate() const {
  if (stage < 0 || stage > 3) return InvalidArgument("zero: stage ", stage, " is not 0 to 3");
  if (!(bucket_cap_mb > 0)) return InvalidArgument("zero: bucket_cap_mb is ", bucket_cap_mb);
  if (auto_wrap_min_params < 0 || prefetch_elements < 0 || max_live_elements < 1 ||
      persistence_threshold < 0) {
    return InvalidArgument("zero: a number of elements is negative");
  }
  if (!auto_wrap_classes.empty() && auto_wrap_min_params > 0) {
    return InvalidArgument("zero: auto_wrap_classes and auto_wrap_min_params exclude each other");
  }
  if (!(offload_fraction >= 0 && offload_fraction <= 1)) {
    return InvalidArgument("zero: offload_fraction ", offload_fraction, " is not from 0 to 1");
  }
  if (stage == 0 && (offload_optimizer || offload_parameters)) {
    return InvalidArgument("zero: off-loading needs stage 1, 2 or 3");
  }
  if (stage < 3 && offload_parameters) {
    return InvalidArgument("zero: off-loading parameters needs stage 3, not ", stage);
  }
  if (offload_parameters && (!offload_optimizer || offload_fraction < 1)) {
    return InvalidArgument(
        "zero: off-loading parameters needs all of the optimizer's states off-loaded too");
  }
  if (communication_dtype) {
    if (deterministic) {
      return InvalidArgument("zero: communication_dtype does not go with deterministic");
    }
    if (!IsHalf(*communication_dtype) && *communication_dtype != DType::kFloat32) {
      return InvalidArgument("zero: communication_dtype must be float32, bfloat16 or float16");
    }
    if (stage == 0) return InvalidArgument("zero: communication_dtype needs stage 1, 2 or 3");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ParseShardingStrategy(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower == "no_shard") return 0;
  if (lower == "shard_grad_op") return 2;
  if (lower == "full_shard") return 3;
  return InvalidArgument("sharding strategy '", name,
                         "' is not known; use full_shard, shard_grad_op or no_shard");
}

absl::StatusOr<BackwardPrefetch> ParseBackwardPrefetch(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower == "none") return BackwardPrefetch::kNone;
  if (lower == "backward_pre") return BackwardPrefetch::kPre;
  if (lower == "backward_post") return BackwardPrefetch::kPost;
  return InvalidArgument("backward_prefetch '", name,
                         "' is not known; use backward_pre, backward_post or none");
}

absl::StatusOr<ZeroOptions> ZeroOptionsFromDeepSpeed(const std::string& key, const json& zero,
                                                     ZeroOptions options) {
  if (!zero.is_object()) return InvalidArgument(key, ": not an object");
  const std::vector<std::string> known(std::begin(kKeys), std::end(kKeys));
  for (const auto& [name, value] : zero.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return InvalidArgument(key, ": unknown key '", name, "'", DidYouMean(name, known));
  }
  Reader reader(key, zero);
  options.stage = static_cast<int>(reader.Count("stage", 0, 0));
  options.overlap = reader.Bool("overlap_comm", options.overlap);
  if (reader.has("reduce_bucket_size")) {
    const auto elements = static_cast<double>(reader.Count("reduce_bucket_size", 1, 1));
    options.bucket_cap_mb = elements * 4 / 1048576;
  }
  if (reader.has("allgather_bucket_size") &&
      (!reader.has("reduce_bucket_size") ||
       zero["allgather_bucket_size"] != zero["reduce_bucket_size"])) {
    reader.Refuse("allgather_bucket_size",
                  "must be equal to 'reduce_bucket_size': parameters travel in the same buckets");
  }
  reader.Only("contiguous_gradients", true, "gradients always lie in buckets");
  reader.Only("reduce_scatter", true, "gradients are always reduce-scattered");
  reader.Only("allgather_partitions", true, "updated parameters are always gathered");
  ReadStage3(&reader, &options);
  ReadOffload(&reader, &options);
  if (reader.has("sub_group_size")) {
    reader.Refuse("sub_group_size",
                  "is not supported: the optimizer works bucket by bucket (reduce_bucket_size)");
  }
  reader.Only("round_robin_gradients", false, "buckets are cut into equal shares");
  reader.Only("load_from_fp32_weights", true, "float32 weights are loaded when they were saved");
  reader.Only("elastic_checkpoint", true, "a checkpoint loads under any number of ranks");
  options.find_unused_parameters =
      reader.Bool("ignore_unused_parameters", options.find_unused_parameters);
  if (!reader.status().ok()) return reader.status();
  const absl::Status valid = options.Validate();
  if (!valid.ok()) return InvalidArgument(key, ": ", Message(valid));
  return options;
}

}  // namespace tessera::dist
