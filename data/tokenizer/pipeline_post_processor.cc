// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_post_processor.h"

#include <algorithm>
#include <string>

#include "data/tokenizer/vocab_index.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

// [text, id] of Bert- and RobertaProcessing.
StatusOr<int32_t> TokenIdIn(const JsonPart& part) {
  const json& item = part.value();
  if (!item.is_array() || item.size() != 2 || !item[1].is_number_integer() ||
      item[1].get<int64_t>() < 0 || item[1].get<int64_t>() >= kMaxTokenId) {
    return part.Wrong("not a token and its id");
  }
  return item[1].get<int32_t>();
}

// [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, ...]
Status ReadTemplate(const JsonPart& part, const JsonPart& tokens, bool pair, RowTemplate* result) {
  if (!part.value().is_array()) return part.Wrong("not an array");
  result->items.clear();
  for (size_t i = 0; i < part.size(); ++i) {
    const JsonPart sequence = part[i]["Sequence"];
    const JsonPart item = sequence.is_null() ? part[i]["SpecialToken"] : sequence;
    TESSERA_ASSIGN_OR_RETURN(const std::string name, item.Text("id", ""));
    TESSERA_ASSIGN_OR_RETURN(const int64_t type, item.Count("type_id", 0));
    if (type > 1000) return item["type_id"].Wrong("too large");
    const auto type_id = static_cast<int32_t>(type);
    if (!sequence.is_null()) {
      if (name != "A" && name != "B") return item["id"].Wrong("neither A nor B");
      result->items.push_back({name == "A" ? RowTemplate::kFirst : RowTemplate::kSecond, type_id});
      continue;
    }
    const JsonPart ids = tokens[name.c_str()]["ids"];
    if (name.empty() || ids.size() == 0) return item.Wrong("no special token of that id");
    for (size_t k = 0; k < ids.size(); ++k) {
      const json& id = ids.value()[k];
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxTokenId) {
        return ids[k].Wrong("not an id");
      }
      result->items.push_back({id.get<int32_t>(), type_id});
    }
  }
  const auto count = [&](int32_t what) {
    return std::count_if(result->items.begin(), result->items.end(),
                         [&](const RowTemplate::Item& item) { return item.id == what; });
  };
  if (count(RowTemplate::kFirst) != 1 || count(RowTemplate::kSecond) != (pair ? 1 : 0)) {
    return part.Wrong("each text must be in it once");
  }
  return OkStatus();
}

}  // namespace

Status ReadPostProcessor(const JsonPart& part, RowTemplate* single, RowTemplate* pair) {
  const std::string_view type = part.type();
  if (type == "ByteLevel") return OkStatus();  // offsets alone
  if (type == "Sequence") {
    const JsonPart all = part["processors"];
    for (size_t i = 0; i < all.size(); ++i)
      TESSERA_RETURN_IF_ERROR(ReadPostProcessor(all[i], single, pair));
    return OkStatus();
  }
  if (type == "TemplateProcessing") {
    const JsonPart tokens = part["special_tokens"];
    TESSERA_RETURN_IF_ERROR(ReadTemplate(part["single"], tokens, false, single));
    return ReadTemplate(part["pair"], tokens, true, pair);
  }
  if (type != "BertProcessing" && type != "RobertaProcessing") return part.Unsupported();
  TESSERA_ASSIGN_OR_RETURN(const int32_t cls, TokenIdIn(part["cls"]));
  TESSERA_ASSIGN_OR_RETURN(const int32_t sep, TokenIdIn(part["sep"]));
  single->items = {{cls, 0}, {RowTemplate::kFirst, 0}, {sep, 0}};
  *pair = *single;
  if (type == "RobertaProcessing") {
    for (const int32_t id : {sep, RowTemplate::kSecond, sep}) pair->items.push_back({id, 0});
  } else {
    for (const int32_t id : {RowTemplate::kSecond, sep}) pair->items.push_back({id, 1});
  }
  return OkStatus();
}

bool IsEmptyTemplate(const JsonPart& part) {
  RowTemplate single;
  RowTemplate pair;
  return part.type() == "TemplateProcessing" && ReadPostProcessor(part, &single, &pair).ok() &&
         single.items.size() == 1 && pair.items.size() == 2;
}

}  // namespace tessera::data
