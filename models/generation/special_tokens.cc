#include "models/generation/special_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/tokenizer/sequence_pair.h"

namespace tessera::models {

namespace {

bool IsGlm(const nlohmann::json& config) {
  return config.contains("model_type") && config["model_type"] == "glm";
}

bool Given(const nlohmann::json& config, const char* key) {
  return config.contains(key) && !config[key].is_null();
}

// [gMASK] behind a text without blank.
void AddBlank(const data::Tokenizer& tokenizer, std::vector<int32_t>* ids) {
  const std::optional<int32_t> blanks[] = {tokenizer.mask_id(), tokenizer.smask_id(),
                                           tokenizer.gmask_id()};
  const bool blank = std::any_of(ids->begin(), ids->end(), [&](int32_t id) {
    return std::find(std::begin(blanks), std::end(blanks), id) != std::end(blanks);
  });
  if (!blank && tokenizer.gmask_id()) ids->push_back(*tokenizer.gmask_id());
}

}  // namespace

bool LacksTokenIds(const nlohmann::json& config) {
  return IsGlm(config) && !Given(config, "sop_token_id");
}

nlohmann::json TokenIdsFromTokenizer(const data::Tokenizer& tokenizer,
                                     const nlohmann::json& config) {
  nlohmann::json changes = nlohmann::json::object();
  if (!IsGlm(config)) return changes;
  const std::pair<const char*, std::optional<int32_t>> tokens[] = {
      {"sop_token_id", tokenizer.sop_id()},
      {"eop_token_id", tokenizer.eop_id()},
      {"mask_token_id", tokenizer.mask_id()},
      {"smask_token_id", tokenizer.smask_id()},
      {"gmask_token_id", tokenizer.gmask_id()}};
  for (const auto& [key, id] : tokens) {
    if (id && !Given(config, key)) changes[key] = *id;
  }
  return changes;
}

absl::StatusOr<std::vector<int64_t>> EncodePrompt(const data::Tokenizer& tokenizer,
                                                  std::string_view text) {
  std::vector<int32_t> ids = tokenizer.Encode(text);
  switch (tokenizer.pair_style()) {
    case data::PairStyle::kNone:  // GPT's: the text alone
    case data::PairStyle::kBert:
    case data::PairStyle::kRoberta:
      break;
    case data::PairStyle::kGlm:
      AddBlank(tokenizer, &ids);
      [[fallthrough]];
    case data::PairStyle::kT5:
    case data::PairStyle::kLlama:
    case data::PairStyle::kChatGlm:
    case data::PairStyle::kTemplate:
      TESSERA_ASSIGN_OR_RETURN(data::EncodedRow row, data::BuildRow(tokenizer, std::move(ids)));
      ids = std::move(row.ids);
  }
  return std::vector<int64_t>(ids.begin(), ids.end());
}

}  // namespace tessera::models
