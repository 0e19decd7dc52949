// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/json_syntax.h"

#include <utility>

#include "base/json_ordered.h"
#include "models/generation/grammar/json_characters.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;

constexpr int kMostIndent = 40;
constexpr int kMostTabs = 10;
constexpr int kDeepestConstant = 200;

int AddConstant(const ordered_json& value, int indent, Nfa* nfa, int from, int depth) {
  if (depth > kDeepestConstant) return -1;
  if (value.is_string()) return AddJsonQuoted(value.get<std::string>(), nfa, from);
  if (!value.is_structured()) return nfa->Text(from, JsonScalar(value));
  const bool object = value.is_object();
  int at = nfa->Add();
  AddJsonSpace(indent, nfa, nfa->Text(from, object ? "{" : "["), at);
  bool first = true;
  for (const auto& [key, part] : value.items()) {
    if (!first) {
      const int next = nfa->Add();
      AddJsonSpace(indent, nfa, nfa->Text(at, ","), next);
      at = next;
    }
    if (object) at = AddJsonColon(nfa, AddJsonQuoted(key, nfa, at));
    at = AddConstant(part, indent, nfa, at, depth + 1);
    if (at < 0) return -1;
    first = false;
  }
  const int last = nfa->Add();
  if (first) {
    nfa->Empty(at, last);
  } else {
    AddJsonSpace(indent, nfa, at, last);
  }
  return nfa->Text(last, object ? "}" : "]");
}

}  // namespace

Nfa JsonIndent() {
  Nfa nfa;
  const int line = nfa.Text(nfa.start(), "\n");
  nfa.Accept(line);
  for (const auto& [blank, most] : {std::pair{' ', kMostIndent}, std::pair{'\t', kMostTabs}}) {
    int from = line;
    for (int i = 0; i < most; ++i) {
      from = nfa.Text(from, std::string(1, blank));
      nfa.Accept(from);
    }
  }
  return nfa;
}

void AddJsonSpace(int indent, Nfa* nfa, int from, int to) {
  nfa->Empty(from, to);
  nfa->Edge(from, ' ', to);
  nfa->Edge(from, CallOf(indent), to);
}

int AddJsonQuoted(const std::string& text, Nfa* nfa, int from) {
  return nfa->Text(AddJsonText(text, nfa, nfa->Text(from, "\"")), "\"");
}

int AddJsonColon(Nfa* nfa, int from) {
  const int colon = nfa->Text(from, ":");
  const int value = nfa->Add();
  nfa->Empty(colon, value);
  nfa->Edge(colon, ' ', value);
  return value;
}

std::string JsonScalar(const ordered_json& value) {
  const std::string_view digits = BigInteger(value);
  return digits.empty() ? value.dump() : std::string(digits);
}

int AddJsonConstant(const ordered_json& value, int indent, Nfa* nfa, int from) {
  return AddConstant(value, indent, nfa, from, 0);
}

}  // namespace tessera::models
