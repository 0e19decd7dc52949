#include "tests/inference/inference_report.h"

#include <cstdint>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "core/batch_keys.h"
#include "core/tensor.h"
#include "data/image/image_processor.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model.h"
#include "models/model_keys.h"

namespace tessera {
namespace {

using models::Model;
using nlohmann::json;

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 5;

json GptConfig() {
  return {{"model_type", "gpt2"}, {"vocab_size", data::ByteTokenizer::kEosId + 1},
          {"n_positions", 32},    {"n_embd", 24},
          {"n_layer", 2},         {"n_head", 4},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},    {"initializer_range", 0.2}};
}

json BertConfig() {
  return {{"model_type", "bert"},
          {"vocab_size", 53},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"max_position_embeddings", 16},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

json VitConfig() {
  return {{"model_type", "vit"},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"image_size", 8},
          {"patch_size", 4},
          {"num_channels", 3},
          {"num_labels", 3},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

json T5Config() {
  return {{"model_type", "t5"}, {"vocab_size", 53}, {"d_model", 24},  {"d_kv", 6},
          {"d_ff", 29},         {"num_layers", 2},  {"num_heads", 4}, {"dropout_rate", 0.0}};
}

json GlmConfig() {
  return {{"model_type", "glm"},
          {"vocab_size", 53},
          {"hidden_size", 24},
          {"num_layers", 2},
          {"num_attention_heads", 4},
          {"max_sequence_length", 16},
          {"embedding_dropout_prob", 0.0},
          {"attention_dropout_prob", 0.0},
          {"output_dropout_prob", 0.0}};
}

// 0, 3, 6, ... below `limit`.
Tensor Numbers(const Shape& shape, int64_t limit) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 3 * static_cast<int64_t>(i) % limit;
  return Tensor::FromVector(values, shape);
}

// A picture of a colour gradient, made the size that the model takes.
StatusOr<Tensor> Picture() {
  TESSERA_ASSIGN_OR_RETURN(
      const data::ImageProcessor processor,
      data::ImageProcessor::Create({.height = 8, .width = 8}, /*channels=*/3, "picture"));
  data::Image image{.height = 12, .width = 10, .channels = 3, .pixels = {}};
  for (int i = 0; i < 12 * 10 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i % 251));
  std::vector<float> pixels(static_cast<size_t>(processor.OutputSize()));
  processor.Apply(image, pixels.data());
  return Tensor::FromVector(pixels, {1, 3, 8, 8});
}

Status ReportForward(const json& config, const Bundle& inputs, std::ostream& report) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           models::BuildModel(config, {.seed = 3}));
  const Bundle outputs = model->Run(inputs, {});
  for (const auto& [name, output] : outputs.entries()) {
    const std::vector<float> values = output.ToVector<float>();
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(float));
    report << config["model_type"].get<std::string>() << " " << name << " " << output.shape() << " "
           << std::hex << data::HashBytes(bytes) << std::dec << "\n";
  }
  return OkStatus();
}

Status ReportGeneration(const std::string& folder, std::ostream& report) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> made,
                           models::BuildModel(GptConfig(), {.seed = 5}));
  const data::ByteTokenizer bytes;
  TESSERA_RETURN_IF_ERROR(models::SaveModel(*made, folder, &bytes));

  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           models::LoadModel(folder, {.require_weights = true}));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer,
                           data::LoadTokenizer(folder));
  TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                           models::ReadGenerationConfig(folder, model->config()));
  config.max_new_tokens = 12;
  config.do_sample = true;  // the most likely token of random weights is ever the same
  const std::vector<int32_t> prompt = tokenizer->Encode("Hello");
  TESSERA_ASSIGN_OR_RETURN(const std::vector<models::GenerationResult> results,
                           models::Generate(*model, {{prompt.begin(), prompt.end()}}, config,
                                            {.tokenizer = tokenizer.get()}));
  report << "generated";
  for (const int64_t id : results[0].ids) report << " " << id;
  report << "\n";
  return OkStatus();
}

}  // namespace

StatusOr<std::string> InferenceReport(const std::string& folder) {
  std::ostringstream report;
  const Tensor ids = Numbers({kRows, kTokens}, 53);
  TESSERA_RETURN_IF_ERROR(ReportForward(GptConfig(), {{keys::kInputIds, ids}}, report));
  TESSERA_RETURN_IF_ERROR(ReportForward(BertConfig(), {{keys::kInputIds, ids}}, report));
  TESSERA_ASSIGN_OR_RETURN(const Tensor picture, Picture());
  TESSERA_RETURN_IF_ERROR(ReportForward(VitConfig(), {{keys::kPixelValues, picture}}, report));
  TESSERA_RETURN_IF_ERROR(ReportForward(
      T5Config(), {{keys::kInputIds, ids}, {keys::kDecoderInputIds, Numbers({kRows, 3}, 53)}},
      report));
  TESSERA_RETURN_IF_ERROR(ReportForward(
      GlmConfig(), {{keys::kInputIds, ids}, {keys::kPositionIds, Numbers({kRows, 2, kTokens}, 16)}},
      report));
  TESSERA_RETURN_IF_ERROR(ReportGeneration(folder, report));
  return report.str();
}

}  // namespace tessera
