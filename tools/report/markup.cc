// SPDX-License-Identifier: Apache-2.0
#include "tools/report/markup.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"
#include "base/printable_text.h"
#include "nlohmann/json.hpp"

namespace tessera::report {
namespace {

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(
      PrintableText(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// Elements of HTML that have no end.
bool IsVoid(const char* element) { return std::strcmp(element, "input") == 0; }

}  // namespace

Markup::Value::Value(double number) : text_(absl::StrFormat("%.2f", number)) {
  text_.erase(text_.find_last_not_of('0') + 1);
  if (text_.back() == '.') text_.pop_back();
}

Markup& Markup::Open(const char* element, Attributes attributes) {
  text_ += '<';
  text_ += element;
  for (const auto& [name, value] : attributes) {
    text_ += ' ';
    text_ += name;
    text_ += "=\"" + Escaped(value.text()) + '"';
  }
  text_ += '>';
  open_.push_back(element);
  return *this;
}

Markup& Markup::Close() {
  TESSERA_CHECK(!open_.empty(), "markup", "nothing is open");
  if (!IsVoid(open_.back())) text_ += std::string("</") + open_.back() + ">";
  open_.pop_back();
  return *this;
}

Markup& Markup::Text(std::string_view text) {
  text_ += Escaped(text);
  return *this;
}

Markup& Markup::Leaf(const char* element, Attributes attributes, std::string_view text) {
  return Open(element, attributes).Text(text).Close();
}

// Nothing in JSON but its strings can hold a "<", which could end the element.
Markup& Markup::Data(Attributes attributes, const nlohmann::ordered_json& data) {
  Open("script", attributes);
  for (const char c : data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) {
    if (c == '<') {
      text_ += "\\u003c";
    } else {
      text_ += c;
    }
  }
  return Close();
}

Markup& Markup::Append(Markup other) {
  text_ += std::move(other).Finish();
  return *this;
}

std::string Markup::Finish() && {
  TESSERA_CHECK(open_.empty(), "markup", "<", open_.back(), "> is not closed");
  return std::move(text_);
}

}  // namespace tessera::report
