// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/cpp_source.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <regex>

namespace tessera::coverage {
namespace {

bool Opens(char c) { return c == '(' || c == '{' || c == '['; }
bool Closes(char c) { return c == ')' || c == '}' || c == ']'; }
bool InWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The first position from `at` where brackets are balanced and one of `ends` stands, or where a
// bracket closes that was not opened.
size_t EndOfExpression(const std::string& text, size_t at, const char* ends) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (depth == 0 && (Closes(text[at]) || std::strchr(ends, text[at]) != nullptr)) break;
    depth += Opens(text[at]) - Closes(text[at]);
  }
  return at;
}

size_t FindWord(const std::string& text, const std::string& word, size_t from) {
  for (size_t at = text.find(word, from); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !InWord(text[at - 1])) && (end == text.size() || !InWord(text[end]))) return at;
  }
  return std::string::npos;
}

// The index behind the literal that begins at `at`.
size_t EndOfLiteral(const std::string& text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) at += text[at] == '\\';
  return at + 1;
}

}  // namespace

std::string WithoutCommentsAndStrings(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (size_t i = 0; i < text.size();) {
    const bool digit_separator = text[i] == '\'' && i > 0 && InWord(text[i - 1]);
    if (text.compare(i, 2, "//") == 0 || (line_start && text[i] == '#')) {
      // A directive continues behind a backslash.
      while (i < text.size() && (text[i] != '\n' || text[i - 1] == '\\')) ++i;
    } else if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i), text.size() - 2) + 2;
    } else if (text[i] == '"' || (text[i] == '\'' && !digit_separator)) {
      i = EndOfLiteral(text, i);
      out += "\"\"";
    } else {
      line_start = text[i] == '\n';
      out += text[i++];
    }
  }
  return out;
}

std::vector<std::string> TopLevelChunks(const std::string& text) {
  static const std::regex kNamespace(R"((inline )?namespace [\w:]* *\{)");
  const std::string flat = std::regex_replace(text, kNamespace, "");
  std::vector<std::string> chunks;
  std::string chunk;
  int depth = 0;
  for (const char c : flat) {
    if (chunk.empty() && (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';')) continue;
    depth += Opens(c) - Closes(c);
    if (depth < 0) {  // a namespace ends
      depth = 0;
      chunk.clear();
      continue;
    }
    chunk += c;
    if (depth == 0 && (c == ';' || c == '}')) {
      chunks.push_back(chunk);
      chunk.clear();
    }
  }
  return chunks;
}

std::set<std::string> Identifiers(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (InWord(c)) {
      word += c;
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

std::vector<std::string> ArgumentsOfCalls(const std::string& text, const std::string& name) {
  std::vector<std::string> calls;
  for (size_t at = FindWord(text, name, 0); at != std::string::npos;
       at = FindWord(text, name, at + 1)) {
    const size_t open = at + name.size();
    if (open >= text.size() || text[open] != '(') continue;
    calls.push_back(text.substr(open + 1, EndOfExpression(text, open + 1, "") - open - 1));
  }
  return calls;
}

std::string InitialiserOf(const std::string& text, const std::string& name) {
  for (size_t at = FindWord(text, name, 0); at != std::string::npos;
       at = FindWord(text, name, at + 1)) {
    const size_t assign = at + name.size();
    if (at < 2 || text[at - 1] != ' ' || !InWord(text[at - 2])) continue;  // no type before it
    if (text.compare(assign, 3, " = ") != 0) continue;
    return text.substr(assign, EndOfExpression(text, assign, ";") - assign);
  }
  return "";
}

std::string WithoutField(const std::string& text, const std::string& field) {
  const size_t at = text.find("." + field + " =");
  if (at == std::string::npos) return text;
  return text.substr(0, at) + text.substr(EndOfExpression(text, at, ","));
}

}  // namespace tessera::coverage
