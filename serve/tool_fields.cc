// SPDX-License-Identifier: Apache-2.0
#include "serve/tool_fields.h"

#include <optional>
#include <utility>
#include <vector>

#include "data/chat/chat_tools.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

using data::CallForm;
using data::ChatTool;

enum class Choice { kNone, kAuto, kCall };

// Whether tools are called; `only` becomes the name of the one that must be.
StatusOr<Choice> ChoiceOf(const ordered_json* json, std::string* only) {
  if (json == nullptr || *json == "auto") return Choice::kAuto;
  if (*json == "none") return Choice::kNone;
  if (*json == "required") return Choice::kCall;
  const auto function = json->is_object() ? json->find("function") : json->end();
  if (json->is_object() && json->value("type", ordered_json()) == "function" &&
      function != json->end() && function->is_object() &&
      function->value("name", ordered_json()).is_string()) {
    *only = (*function)["name"];
    return Choice::kCall;
  }
  return InvalidArgument(
      "tool_choice: must be none, auto, required or {\"type\": \"function\", \"function\": "
      "{\"name\": ...}}");
}

// A schema that becomes a part of another one: what it refers to within itself moves with it.
ordered_json Moved(ordered_json schema, const std::string& root) {
  if (!schema.is_structured()) return schema;
  for (auto& [key, part] : schema.items()) {
    const bool refers = key == "$ref" && part.is_string();
    if (!refers) {
      part = Moved(std::move(part), root);
    } else if (const std::string target = part; target.starts_with('#')) {
      part = root + target.substr(1);
    }
  }
  return schema;
}

// Of a tool's arguments, which are an object whatever else its parameters say.
ordered_json ArgumentsOf(size_t tool) {
  return {{"type", "object"}, {"$ref", Concat("#/$defs/tool", tool)}};
}

// The tools' parameters, as ArgumentsOf refers to them.
ordered_json Definitions(const std::vector<ChatTool>& tools) {
  ordered_json definitions = ordered_json::object();
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = Concat("tool", i);
    definitions[place] = Moved(tools[i].parameters, "#/$defs/" + place);
  }
  return definitions;
}

// Calls as objects that name the tool.
ordered_json SchemaOfCalls(const std::vector<ChatTool>& tools, const CallForm& form,
                           bool parallel) {
  ordered_json calls = ordered_json::array();
  const std::string key(form.arguments);
  for (size_t i = 0; i < tools.size(); ++i) {
    ordered_json properties = {{"name", {{"const", tools[i].name}}}};
    properties[key] = ArgumentsOf(i);
    calls.push_back({{"type", "object"},
                     {"properties", std::move(properties)},
                     {"required", {"name", key}},
                     {"additionalProperties", false}});
  }
  ordered_json schema = {{"anyOf", std::move(calls)}};
  if (form.list) {
    schema = {{"type", "array"}, {"items", std::move(schema)}, {"minItems", 1}};
    if (!parallel) schema["maxItems"] = 1;
  }
  schema["$defs"] = Definitions(tools);
  return schema;
}

// A call whose name stands before its arguments.
StatusOr<GrammarCache::Grammar> GrammarOfNamedCall(const std::vector<ChatTool>& tools,
                                                   const CallForm& form,
                                                   models::JsonObjects objects, Service& service) {
  const std::string mark(form.behind_name);
  ordered_json document = {{"$defs", Definitions(tools)}, {"anyOf", ordered_json::array()}};
  for (size_t i = 0; i < tools.size(); ++i) document["anyOf"].push_back(ArgumentsOf(i));
  std::vector<models::JsonBehindText> calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    calls.push_back({tools[i].name + mark, &document["anyOf"][i]});
  }
  return service.grammars().OfTexts(document, calls, {mark}, "tools", objects);
}

StatusOr<GrammarCache::Grammar> GrammarOfCalls(std::vector<ChatTool> tools, const std::string& only,
                                               const CallForm& form, bool parallel,
                                               Service& service) {
  if (tools.empty()) return InvalidArgument("tool_choice: needs `tools`");
  if (!only.empty()) {
    std::erase_if(tools, [&](const ChatTool& tool) { return tool.name != only; });
    if (tools.empty()) return InvalidArgument("tool_choice: no tool is called '", only, "'");
  }
  auto objects = models::JsonObjects::kClosed;
  for (const ChatTool& tool : tools) {
    if (!tool.strict) objects = models::JsonObjects::kOpen;
    // By itself: so that messages have the request's paths.
    TESSERA_RETURN_IF_ERROR(service.grammars().OfSchema(tool.parameters, tool.where).status());
  }
  if (!form.behind_name.empty()) return GrammarOfNamedCall(tools, form, objects, service);
  return service.grammars().OfSchema(SchemaOfCalls(tools, form, parallel), "tools", objects);
}

}  // namespace

ToolFields ReadToolFields(Fields& fields, Service& service, std::string_view chat_template) {
  ToolFields read;
  read.parallel = fields.Flag("parallel_tool_calls").value_or(true);
  std::string only;
  const auto tools = data::ChatToolsOf(fields.Any("tools"));
  if (!tools.ok()) fields.Fail("tools", tools.status());
  const auto choice = ChoiceOf(fields.Any("tool_choice"), &only);
  if (!choice.ok()) fields.Fail("tool_choice", choice.status());
  if (!tools.ok() || !choice.ok() || *choice == Choice::kNone) return read;
  for (const ChatTool& tool : *tools) read.names.insert(tool.name);
  if (!tools->empty()) read.form = data::CallFormOf(chat_template);
  if (*choice == Choice::kAuto) return read;
  if (!tools->empty() && read.form == nullptr) {
    fields.Fail("tool_choice", "the chat template shows no form of calls that is known");
    return read;
  }
  auto grammar = GrammarOfCalls(*tools, only, read.form == nullptr ? data::CallForm() : *read.form,
                                read.parallel, service);
  if (!grammar.ok()) {
    const bool choosing = Message(grammar.status()).starts_with("tool_choice");
    fields.Fail(choosing ? "tool_choice" : "tools", grammar.status());
    return read;
  }
  read.grammar = *std::move(grammar);
  return read;
}

}  // namespace tessera::serve
