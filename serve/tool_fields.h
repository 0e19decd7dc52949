// SPDX-License-Identifier: Apache-2.0
// The tools of a conversation's request: which may be called, and whether one must be.
//
//   const ToolFields tools = ReadToolFields(fields, service, template_text);
//   tools.form;      // how the model writes calls; nullptr: they stay words
//   tools.grammar;   // of calls alone, where one must be made
#ifndef TESSERA_SERVE_TOOL_FIELDS_H_
#define TESSERA_SERVE_TOOL_FIELDS_H_

#include <set>
#include <string>
#include <string_view>

#include "data/chat/answer_reader.h"
#include "serve/fields.h"
#include "serve/grammar_cache.h"
#include "serve/service.h"

namespace tessera::serve {

struct ToolFields {
  const data::CallForm* form = nullptr;
  std::set<std::string> names = {};
  bool parallel = true;                     // several calls may come
  GrammarCache::Grammar grammar = nullptr;  // of what is behind the form's beginning
};

// `tools`, `tool_choice` and `parallel_tool_calls`. What is wrong fails by its name, a schema that
// is not supported by the keyword and its path.
ToolFields ReadToolFields(Fields& fields, Service& service, std::string_view chat_template);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_TOOL_FIELDS_H_
