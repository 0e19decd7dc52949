// SPDX-License-Identifier: Apache-2.0
#include "models/hub/other_checkpoints.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "models/hub/weight_file.h"

namespace tessera::models {
namespace {

using Names = std::vector<std::string>;

// Sorted.
Names NamesIn(const std::string& folder) { return ListDirectory(folder).value_or(Names()); }

bool Has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool HasEnd(const Names& names, std::string_view end) {
  return std::ranges::any_of(names, [&](const std::string& name) { return name.ends_with(end); });
}

// Whose checkpoint a folder of these files is; `where` is it in the message: ", 'global_step10'".
std::string CheckpointOf(const std::string& folder, const Names& names, const std::string& where) {
  const bool of_deepspeed = HasEnd(names, "_model_states.pt");
  if (Has(names, "zero") && (of_deepspeed || folder.ends_with("_universal"))) {
    return Concat("a universal checkpoint of DeepSpeed", where,
                  "; DeepSpeed's zero_to_fp32.py makes weights of the one that it was made from");
  }
  if (of_deepspeed) {
    return Concat("a checkpoint of DeepSpeed", where,
                  "; DeepSpeed's zero_to_fp32.py makes weights of it");
  }
  if (HasEnd(names, ".distcp") && Has(names, "common.pt")) {
    return Concat("a checkpoint of Megatron Core", where,
                  "; Megatron Bridge (AutoBridge.export_ckpt) makes a model's folder of it");
  }
  if (HasEnd(names, ".distcp")) {
    const bool of_accelerate = where.find("pytorch_model_fsdp") != std::string::npos;
    return Concat("a checkpoint of torch.distributed", where,
                  of_accelerate ? "; `accelerate merge-weights` makes weights of it"
                                : "; `python -m torch.distributed.checkpoint.format_utils "
                                  "dcp_to_torch` makes one file of it");
  }
  const bool of_meta = std::ranges::any_of(names, [](const std::string& name) {
    return name.starts_with("consolidated.") && WeightFile::IsTorchName(name);
  });
  if (of_meta && Has(names, "params.json") && !Has(names, "config.json")) {
    return Concat("a checkpoint with names of Meta's own", where,
                  "; transformers' convert_llama_weights_to_hf.py makes a model's folder of it");
  }
  if (Has(names, "model_optim_rng.pt")) {
    return Concat("a checkpoint of Megatron-LM", where,
                  "; `tessera convert` makes a model's folder of its model_optim_rng.pt");
  }
  return "";
}

// What is beside weights in other systems' checkpoints.
bool IsNoWeights(const std::string& name) {
  for (const char* begin : {"adapter_", "custom_checkpoint", "optimizer", "random_states",
                            "rng_state", "sampler", "scaler", "scheduler", "training_args"}) {
    if (name.starts_with(begin)) return true;
  }
  return name.ends_with("_optim_states.pt");
}

bool IsOfTorch(const std::string& path) {
  if (!WeightFile::IsTorchName(path)) return false;
  const StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok() || file->size() < 2) return false;
  const std::string_view begin(reinterpret_cast<const char*>(file->data()), 2);
  return begin == "PK" || begin[0] == '\x80';
}

}  // namespace

std::string CheckpointOfOthersIn(const std::string& folder) {
  const Names names = NamesIn(folder);
  if (std::string found = CheckpointOf(folder, names, ""); !found.empty()) return found;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (!IsDirectory(path) || name.starts_with("optimizer")) continue;
    const Names inside = NamesIn(path);
    if (std::string found = CheckpointOf(path, inside, Concat(", '", name, "'")); !found.empty()) {
      return found;
    }
    // Megatron-LM's iter_0000010/mp_rank_00.
    for (const std::string& rank : inside) {
      if (!rank.starts_with("mp_rank_")) continue;
      std::string found = CheckpointOf(path, NamesIn(JoinPath(path, rank)),
                                       Concat(", '", JoinPath(name, rank), "'"));
      if (!found.empty()) return found;
    }
  }
  return "";
}

std::string WeightsOfOthersIn(const std::string& folder) {
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = JoinPath(folder, name);
    if (IsNoWeights(name) || IsDirectory(path)) continue;
    const auto said = [&](std::string_view what) { return Concat("'", name, "', ", what); };
    const bool is_safetensors = name.ends_with(".safetensors");
    if (is_safetensors || IsOfTorch(path)) {
      const std::string_view read = is_safetensors ? "model.safetensors" : "pytorch_model.bin";
      if (name.find("-of-") != std::string::npos) {
        return said(Concat("one of several files, whose index (", read, ".index.json) is missing"));
      }
      if (name.starts_with("consolidated.")) {
        return said("which has names of its publisher's own; Hugging Face's files are read");
      }
      if (name == "lit_model.pth") {
        return said("which has LitGPT's names; `litgpt convert_from_litgpt` makes Hugging Face's");
      }
      return said(Concat("which is read under the name ", read,
                         " if its tensors have Hugging Face's names"));
    }
    if (name.ends_with(".gguf")) return said("which is a model by itself: give the file");
    for (const auto& [end, system] : {std::pair(".h5", "TensorFlow's"),
                                      {".ckpt.index", "TensorFlow's"},
                                      {".msgpack", "Flax's"},
                                      {".npz", "NumPy's"}}) {
      if (!name.ends_with(end)) continue;
      return said(Concat("which is ", system, "; safetensors and PyTorch's files are read"));
    }
  }
  return "";
}

}  // namespace tessera::models
