// SPDX-License-Identifier: Apache-2.0
// How a booster lays a training out, under the names of Colossal-AI's plugins.
//
//   Booster booster(HybridParallelPlugin{.tp_size = 2, .pp_size = 2, .num_microbatches = 4});
//   Booster booster(LowLevelZeroPlugin{.stage = 2, .more = {{"overlap_communication", false}}});
//
// A plugin is a name and arguments. What an argument means is declared with the keys of a run's
// configuration and their other names (train/foreign/run_keys.h; docs/migration.md has the table):
// fields are the usual ones, and `more` takes any documented one under its name. An argument that
// nothing here corresponds to is refused by name, with the reason. Defaults are the plugins' own
// where they change what is computed (precision, clipping), and a run's elsewhere.
#ifndef TESSERA_TRAIN_BOOST_PLUGINS_H_
#define TESSERA_TRAIN_BOOST_PLUGINS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_member.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"

namespace tessera::train {

using PluginArguments = JsonMember;  // an object

// TorchDDPPlugin: every rank has all of the model and sees other rows.
struct DataParallelPlugin {
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool check_reduction = false;
  PluginArguments more = PluginArguments::Object();

  static constexpr const char* kName = "DataParallelPlugin";
  static PluginArguments Defaults();
  PluginArguments Arguments() const;
};

// Optimizer states (stage 1) and gradients (2) shared out over the data-parallel ranks.
struct LowLevelZeroPlugin {
  int64_t stage = 1;
  std::string precision = "fp16";  // of the parameters: fp16, bf16, fp32
  double max_norm = 0;             // 0: gradients are not clipped
  double initial_scale = 65536;
  bool cpu_offload = false;
  bool overlap_communication = true;
  std::string communication_dtype = {};  // as they are
  PluginArguments more = PluginArguments::Object();

  static constexpr const char* kName = "LowLevelZeroPlugin";
  static PluginArguments Defaults();
  PluginArguments Arguments() const;
};

// Parameters shared out too, and off-loaded as far as is asked.
struct GeminiPlugin {
  double shard_param_frac = 1;    // 1: cut, 0: whole on every rank
  double offload_optim_frac = 0;  // the share of the optimizer's states in host memory
  double offload_param_frac = 0;  // 0 or 1
  std::string precision = "fp16";
  double max_norm = 0;
  double initial_scale = 65536;
  int64_t tp_size = 1;
  bool enable_sequence_parallelism = false;
  PluginArguments more = PluginArguments::Object();

  static constexpr const char* kName = "GeminiPlugin";
  static PluginArguments Defaults();
  PluginArguments Arguments() const;
};

// Layers, blocks and batches shared out.
struct HybridParallelPlugin {
  int64_t tp_size = 1;
  int64_t pp_size = 1;
  int64_t ep_size = 1;  // MoeHybridParallelPlugin's
  int64_t zero_stage = 0;
  std::string precision = "fp16";
  // Of ExecutePipeline: how many, or of how many rows.
  std::optional<int64_t> num_microbatches = std::nullopt;
  std::optional<int64_t> microbatch_size = std::nullopt;
  std::string pp_style = "1f1b";
  std::optional<int64_t> num_model_chunks = std::nullopt;
  bool enable_sequence_parallelism = false;
  double max_norm = 0;
  double initial_scale = 65536;
  bool cpu_offload = false;
  PluginArguments more = PluginArguments::Object();

  static constexpr const char* kName = "HybridParallelPlugin";
  static PluginArguments Defaults();
  PluginArguments Arguments() const;
};

// Any of them.
class Plugin {
 public:
  template <typename P>
  requires requires { P::kName; }
  Plugin(const P& plugin)
      : name_(P::kName),
        defaults_(P::Defaults()),
        arguments_(Given(plugin.Arguments(), plugin.more, P().Arguments())) {}

  const std::string& name() const { return name_; }
  // Sets the keys of a run that the arguments stand for.
  Status ApplyTo(RunConfig* config) const;

 private:
  // The arguments that differ from their defaults, and `more`.
  static PluginArguments Given(const PluginArguments& fields, const PluginArguments& more,
                               const PluginArguments& usual);

  std::string name_;
  PluginArguments defaults_;  // keys of ours
  PluginArguments arguments_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_BOOST_PLUGINS_H_
