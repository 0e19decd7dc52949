// SPDX-License-Identifier: Apache-2.0
#include "models/hub/megatron_gpt2.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "models/config_reader.h"
#include "models/hub/match_entries.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr const char* kWords = "language_model.embedding.word_embeddings.weight";
constexpr const char* kPositions = "language_model.embedding.position_embeddings.weight";
constexpr const char* kCoreWords = "embedding.word_embeddings.weight";
constexpr const char* kHead = "language_model.output_layer.weight";
constexpr int64_t kGpt2Vocabulary = 50257;
constexpr int64_t kHeadWidth = 64;

// Values of `args` with which a checkpoint is of GPT-2; absent ones are fine.
std::vector<std::pair<const char*, json>> Gpt2Args() {
  return {
      {"tensor_model_parallel_size", 1},
      {"pipeline_model_parallel_size", 1},
      {"apply_residual_connection_post_layernorm", false},
      {"swiglu", false},
      {"squared_relu", false},
      {"group_query_attention", false},
      {"add_bias_linear", true},
      {"apply_layernorm_1p", false},
      {"position_embedding_type", "learned_absolute"},
      {"normalization", "LayerNorm"},
  };
}

// Keys of config.json, and the arguments that say them.
constexpr std::pair<const char*, const char*> kSizes[] = {
    {"n_positions", "max_position_embeddings"},
    {"n_embd", "hidden_size"},
    {"n_layer", "num_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "ffn_hidden_size"}};
constexpr std::pair<const char*, const char*> kNumbers[] = {
    {"resid_pdrop", "hidden_dropout"},      {"embd_pdrop", "hidden_dropout"},
    {"attn_pdrop", "attention_dropout"},    {"layer_norm_epsilon", "layernorm_epsilon"},
    {"layer_norm_epsilon", "norm_epsilon"}, {"initializer_range", "init_method_std"},
};

struct Name {
  std::string ours;
  std::string theirs;
};

// Of a layer, without its number.
std::vector<Name> LayerNames(const std::string& attention) {
  return {{"ln_1", "input_layernorm"},           {"attn.c_attn", attention + ".query_key_value"},
          {"attn.c_proj", attention + ".dense"}, {"ln_2", "post_attention_layernorm"},
          {"mlp.c_fc", "mlp.dense_h_to_4h"},     {"mlp.c_proj", "mlp.dense_4h_to_h"}};
}

bool IsOfCore(const TorchFile::Entry& entry) { return entry.name.starts_with("decoder.layers."); }

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// [out, in] to [in, out].
Tensor Transposed(const Tensor& weight) {
  const int64_t out = weight.size(0);
  const int64_t in = weight.size(1);
  return weight.AsStrided({in, out}, {1, in}, 0).ContiguousCopy();
}

// Rows of [3 H D, C] (or [3 H D]) by projection, head and feature, where `version` has them
// otherwise; a matrix is transposed as well.
Tensor SortedProjections(const Tensor& t, double version, int64_t heads) {
  const int64_t width = t.ndim() == 1 ? 1 : t.size(1);
  const int64_t features = t.size(0) / (3 * heads);
  // Rows from one projection, head and feature to the next.
  int64_t projection = heads * features;
  int64_t head = features;
  int64_t feature = 1;
  if (version == 1.0) {
    projection = 1;
    head = 3 * features;
    feature = 3;
  } else if (version >= 2.0) {
    projection = features;
    head = 3 * features;
  }
  const Tensor sorted = t.AsStrided({width, 3, heads, features},
                                    {1, projection * width, head * width, feature * width}, 0)
                            .ContiguousCopy();
  if (t.ndim() == 1) return sorted.AsStrided({t.size(0)}, {1}, 0);
  return sorted.AsStrided({width, t.size(0)}, {t.size(0), 1}, 0);
}

}  // namespace

StatusOr<MegatronGpt2> MegatronGpt2::Open(const std::string& path) {
  MegatronGpt2 result;
  TESSERA_ASSIGN_OR_RETURN(result.file_, TorchFile::Open(path));
  const TorchFile& file = result.file_;
  if (file.Find(kCoreWords) != nullptr || std::ranges::any_of(file.entries(), IsOfCore)) {
    return InvalidArgument(path,
                           ": a checkpoint of Megatron Core, whose names are not read; "
                           "Megatron-LM's tools/checkpoint/convert.py --loader core --saver legacy "
                           "writes those that are");
  }
  if (file.Find(kWords) == nullptr && file.Find(kPositions) == nullptr) {
    return InvalidArgument(path, ": no checkpoint of a GPT-2 of Megatron-LM ('", kWords,
                           "' is missing); weights with other names are converted from a folder "
                           "that holds them and their config.json");
  }
  if (file.Find(kWords) == nullptr || file.Find(kPositions) == nullptr) {
    return InvalidArgument(path, ": no checkpoint of a GPT-2 of Megatron-LM: '", kWords, "' or '",
                           kPositions, "' is missing");
  }
  if (file.Find(kWords)->shape.size() != 2 || file.Find(kPositions)->shape.size() != 2) {
    return InvalidArgument(path, ": the embeddings are no matrices");
  }
  for (const char* layers : {"language_model.transformer.", "language_model.encoder."}) {
    for (const char* attention : {"attention", "self_attention"}) {
      const std::string first = Concat(layers, "layers.0.", attention, ".query_key_value.weight");
      if (file.Find(first) == nullptr) continue;
      result.layers_ = layers;
      result.attention_ = attention;
    }
  }
  if (result.layers_.empty()) {
    return InvalidArgument(path, ": no layer with 'attention.query_key_value.weight'");
  }
  const json scalars = file.Scalars();
  ConfigReader reader(scalars, "Megatron-LM");
  reader.Read("checkpoint_version", &result.version_);
  if (!reader.status().ok()) return InvalidArgument(path, ": ", Message(reader.status()));
  TESSERA_RETURN_IF_ERROR(scalars.contains("args") ? result.ReadArgs(scalars["args"])
                                                   : result.ReadShapes());
  return result;
}

Status MegatronGpt2::ReadArgs(const json& args) {
  for (const auto& [key, expected] : Gpt2Args()) {
    // An enumeration's value is not known; its tensors tell.
    if (!args.contains(key) || args[key] == expected || args[key].is_object()) continue;
    return InvalidArgument(file_.path(), ": args.", key, " is ", args[key].dump(),
                           "; a checkpoint of a GPT-2 that is in one piece has ", expected.dump());
  }
  ConfigReader reader(args, "Megatron-LM");
  config_ = {{"model_type", "gpt2"},      {"architectures", {"GPT2LMHeadModel"}},
             {"resid_pdrop", 0.1},        {"embd_pdrop", 0.1},
             {"attn_pdrop", 0.1},         {"layer_norm_epsilon", 1e-5},
             {"initializer_range", 0.02}, {"tie_word_embeddings", file_.Find(kHead) == nullptr}};
  for (const auto& [key, arg] : kSizes) {
    int64_t size = 0;
    reader.Read(arg, &size);
    reader.Require(size > 0, Concat("'", arg, "' is missing, or out of range"));
    config_[key] = size;
  }
  for (const auto& [key, arg] : kNumbers) {
    double number = config_[key].get<double>();
    reader.Read(arg, &number);
    config_[key] = number;
  }
  // `padded_vocab_size` counts rows that stand for no token.
  int64_t vocabulary = file_.Find(kWords)->shape[0];
  for (const char* arg : {"padded_vocab_size", "vocab_size", "orig_vocab_size"}) {
    reader.Read(arg, &vocabulary);
  }
  config_["vocab_size"] = vocabulary;
  config_["bos_token_id"] = config_["eos_token_id"] = vocabulary - 1;
  bool fused = false;  // with the tanh approximation
  bool openai = false;
  reader.Read("bias_gelu_fusion", &fused);
  reader.Read("openai_gelu", &openai);
  config_["activation_function"] = fused ? "gelu_fast" : openai ? "gelu_new" : "gelu";
  if (reader.status().ok()) return OkStatus();
  return InvalidArgument(file_.path(), ": ", Message(reader.status()));
}

Status MegatronGpt2::ReadShapes() {
  const std::vector<int64_t>& words = file_.Find(kWords)->shape;
  const std::vector<int64_t>& positions = file_.Find(kPositions)->shape;
  if (words[1] % kHeadWidth != 0) {
    return InvalidArgument(file_.path(), ": without `args` the heads are taken to be ", kHeadWidth,
                           " wide, and the embeddings, ", words[1], " wide, are no multiple of it");
  }
  int64_t layers = 0;
  while (file_.Find(Concat(layers_, "layers.", layers, ".input_layernorm.weight")) != nullptr) {
    ++layers;
  }
  const int64_t vocabulary = std::min(words[0], kGpt2Vocabulary);
  config_ = {{"model_type", "gpt2"},
             {"architectures", {"GPT2LMHeadModel"}},
             {"vocab_size", vocabulary},
             {"n_positions", positions[0]},
             {"n_embd", words[1]},
             {"n_layer", layers},
             {"n_head", words[1] / kHeadWidth},
             {"n_inner", 4 * words[1]},
             {"activation_function", "gelu_new"},
             {"bos_token_id", vocabulary - 1},
             {"eos_token_id", vocabulary - 1}};
  return OkStatus();
}

std::string MegatronGpt2::SourceOf(const std::string& parameter) const {
  if (parameter == "transformer.wte.weight") return kWords;
  if (parameter == "transformer.wpe.weight") return kPositions;
  if (parameter == "lm_head.weight") return kHead;
  const size_t leaf = parameter.rfind('.');
  const std::string path = parameter.substr(0, leaf);
  const std::string kind = parameter.substr(leaf);
  if (path == "transformer.ln_f") return layers_ + "final_layernorm" + kind;
  const std::string prefix = "transformer.h.";
  const size_t dot = path.find('.', prefix.size());
  for (const Name& name : LayerNames(attention_)) {
    if (dot == std::string::npos || path.substr(dot + 1) != name.ours) continue;
    const std::string layer = path.substr(prefix.size(), dot - prefix.size());
    return layers_ + "layers." + layer + "." + name.theirs + kind;
  }
  return "";
}

StatusOr<Tensor> MegatronGpt2::Read(const std::string& parameter) const {
  std::vector<std::byte> made;
  const std::string source = SourceOf(parameter);
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, file_.Get(source, &made));
  const int64_t ndim = EndsWith(source, "weight") && !EndsWith(source, "norm.weight") ? 2 : 1;
  const bool projections =
      EndsWith(parameter, "c_attn.weight") || EndsWith(parameter, "c_attn.bias");
  const int64_t heads = config_["n_head"].get<int64_t>();
  if (std::ssize(view.shape) != ndim || !IsFloating(view.dtype) ||
      (projections && (heads <= 0 || view.shape[0] % (3 * heads) != 0))) {
    return InvalidArgument(file_.path(), ": tensor '", source, "' has another shape than GPT-2's");
  }
  Tensor t = Empty(Shape(view.shape), view.dtype);
  if (view.nbytes > 0) std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
  if (projections) return SortedProjections(t, version_, heads);
  if (source == kWords || source == kHead) {
    const int64_t rows = std::min(t.size(0), config_["vocab_size"].get<int64_t>());
    return t.AsStrided({rows, t.size(1)}, {t.size(1), 1}, 0);
  }
  return ndim == 2 && source != kPositions ? Transposed(t) : t;
}

Status MegatronGpt2::CheckNothingIsLeft(const std::vector<std::string>& parameters) const {
  std::set<std::string> known;
  for (const std::string& parameter : parameters) known.insert(SourceOf(parameter));
  std::vector<std::string> unknown;
  for (const TorchFile::Entry& entry : file_.entries()) {
    // Copies of the embedding on the last stage of a pipeline, and the causal masks.
    if (entry.name == "word_embeddings_for_head.weight" || EndsWith(entry.name, "attention.bias") ||
        EndsWith(entry.name, "attention.masked_bias")) {
      continue;
    }
    if (known.count(entry.name) == 0) unknown.push_back(entry.name);
  }
  if (unknown.empty()) return OkStatus();
  return InvalidArgument(file_.path(), ": unknown ", unknown.size() == 1 ? "tensor " : "tensors ",
                         QuotedNames(unknown));
}

}  // namespace tessera::models
