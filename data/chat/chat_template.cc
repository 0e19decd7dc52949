// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_template.h"

#include <utility>

#include "base/utf8.h"
#include "data/chat/template_evaluator.h"
#include "data/chat/template_syntax.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

Status StatusOf(const std::string& source, const chat::TemplateFailure& failure) {
  if (failure.line == 0) return InvalidArgument(source, ": ", failure.message);
  return InvalidArgument(source, ":", failure.line, ": ", failure.message);
}

// A tree of values is as deep as the JSON; so is the recursion that makes it.
bool IsTooDeep(const nlohmann::ordered_json& json, int left) {
  if (!json.is_structured()) return false;
  if (left == 0) return true;
  for (const auto& item : json) {
    if (IsTooDeep(item, left - 1)) return true;
  }
  return false;
}

}  // namespace

StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view text, std::string source) {
  if (const size_t bad = FindInvalidUtf8(text); bad != kNoInvalidUtf8) {
    return InvalidArgument(source, ": invalid UTF-8 at byte ", bad);
  }
  ChatTemplate result;
  try {
    result.body_ = std::make_shared<const std::vector<chat::Node>>(chat::ParseTemplate(text));
  } catch (const chat::TemplateFailure& failure) {
    return StatusOf(source, failure);
  }
  result.text_ = text;
  result.source_ = std::move(source);
  return result;
}

StatusOr<Rendering> ChatTemplate::Render(const nlohmann::ordered_json& variables,
                                         const RenderOptions& options) const {
  if (!variables.is_object()) return InvalidArgument(source_, ": the variables are no object");
  if (IsTooDeep(variables, chat::kMaxValueDepth)) {
    return InvalidArgument(source_, ": the variables are nested too deeply");
  }
  try {
    chat::Value::Items values;
    for (const auto& [name, value] : variables.items()) {
      values.emplace_back(chat::Value::Of(name), chat::Value::FromJson(value));
    }
    return chat::Evaluator(std::move(values), options).Run(*body_);
  } catch (const chat::TemplateFailure& failure) {
    return StatusOf(source_, failure);
  }
}

}  // namespace tessera::data
