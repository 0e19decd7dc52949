// SPDX-License-Identifier: Apache-2.0
#include "tests/inference/inference_report.h"

#include <cstdint>
#include <memory>
#include <sstream>
#include <vector>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/inference/small_models.h"

namespace tessera {
namespace {

using models::Model;

Status ReportForward(const std::string& model_type, std::ostream& report) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           models::BuildModel(SmallConfig(model_type), {.seed = 3}));
  std::istringstream lines(FingerprintOf(model->Run(SmallInputs(model_type), {})));
  for (std::string line; std::getline(lines, line);) report << model_type << " " << line << "\n";
  return OkStatus();
}

Status ReportGeneration(const std::string& folder, std::ostream& report) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> made,
                           models::BuildModel(SmallConfig("gpt2"), {.seed = 5}));
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
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<models::GenerationResult> results,
      models::Generate(*model, {prompt}, config, {.tokenizer = tokenizer.get()}));
  report << "generated";
  for (const int64_t id : results[0].ids) report << " " << id;
  report << "\n";
  return OkStatus();
}

}  // namespace

StatusOr<std::string> InferenceReport(const std::string& folder) {
  std::ostringstream report;
  for (const char* model_type : kSmallModels) {
    TESSERA_RETURN_IF_ERROR(ReportForward(model_type, report));
  }
  TESSERA_RETURN_IF_ERROR(ReportGeneration(folder, report));
  return report.str();
}

}  // namespace tessera
