#include "models/hub/megatron_gpt2.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "models/hub/match_entries.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr const char* kWords = "language_model.embedding.word_embeddings.weight";
constexpr const char* kPositions = "language_model.embedding.position_embeddings.weight";
constexpr const char* kHead = "language_model.output_layer.weight";
constexpr int64_t kGpt2Vocabulary = 50257;
constexpr int64_t kHeadWidth = 64;

// Values of `args` with which a checkpoint is of GPT-2; absent ones are fine.
const std::pair<const char*, json> kGpt2Args[] = {
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

json ActivationOf(const json& args) {
  if (args.value("bias_gelu_fusion", false)) return "gelu_fast";
  return args.value("openai_gelu", false) ? "gelu_new" : "gelu";
}

}  // namespace

StatusOr<MegatronGpt2> MegatronGpt2::Open(const std::string& path) {
  MegatronGpt2 result;
  TESSERA_ASSIGN_OR_RETURN(result.file_, TorchFile::Open(path));
  const TorchFile& file = result.file_;
  if (file.Find(kWords) == nullptr || file.Find(kPositions) == nullptr) {
    return InvalidArgument(path, ": no checkpoint of a GPT-2 of Megatron-LM: '", kWords, "' or '",
                           kPositions, "' is missing");
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
  result.version_ = scalars.value("checkpoint_version", 0.0);
  TESSERA_RETURN_IF_ERROR(scalars.contains("args") ? result.ReadArgs(scalars["args"])
                                                   : result.ReadShapes());
  return result;
}

Status MegatronGpt2::ReadArgs(const json& args) {
  for (const auto& [key, expected] : kGpt2Args) {
    if (!args.contains(key) || args[key] == expected || args[key].is_object()) continue;
    return InvalidArgument(file_.path(), ": args.", key, " is ", args[key].dump(),
                           "; a checkpoint of a GPT-2 that is in one piece has ", expected.dump());
  }
  config_ = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}}};
  const std::pair<const char*, const char*> sizes[] = {{"n_positions", "max_position_embeddings"},
                                                       {"n_embd", "hidden_size"},
                                                       {"n_layer", "num_layers"},
                                                       {"n_head", "num_attention_heads"},
                                                       {"n_inner", "ffn_hidden_size"}};
  for (const auto& [key, arg] : sizes) {
    if (!args.contains(arg) || !args[arg].is_number_integer()) {
      return InvalidArgument(file_.path(), ": args.", arg, " is missing, or no integer");
    }
    config_[key] = args[arg];
  }
  const int64_t rows = file_.Find(kWords)->shape.at(0);
  const int64_t padded = args.value("padded_vocab_size", rows);
  config_["vocab_size"] = args.value("orig_vocab_size", args.value("vocab_size", padded));
  config_["activation_function"] = ActivationOf(args);
  config_["resid_pdrop"] = config_["embd_pdrop"] = args.value("hidden_dropout", 0.1);
  config_["attn_pdrop"] = args.value("attention_dropout", 0.1);
  config_["layer_norm_epsilon"] = args.value("layernorm_epsilon", args.value("norm_epsilon", 1e-5));
  config_["initializer_range"] = args.value("init_method_std", 0.02);
  config_["tie_word_embeddings"] = file_.Find(kHead) == nullptr;
  config_["bos_token_id"] = config_["eos_token_id"] = config_["vocab_size"].get<int64_t>() - 1;
  return OkStatus();
}

Status MegatronGpt2::ReadShapes() {
  const std::vector<int64_t>& words = file_.Find(kWords)->shape;
  const std::vector<int64_t>& positions = file_.Find(kPositions)->shape;
  if (words.size() != 2 || positions.size() != 2 || words[1] % kHeadWidth != 0) {
    return InvalidArgument(file_.path(), ": without `args` the heads are taken to be ", kHeadWidth,
                           " wide, and the embeddings are not a multiple of it");
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
