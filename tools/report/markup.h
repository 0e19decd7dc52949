// SPDX-License-Identifier: Apache-2.0
// HTML and SVG that is well-formed and says what it was given, whatever that is.
//
//   Markup page;
//   page.Open("p", {{"class", "note"}}).Text(run_name).Close();
//   page.Leaf("th", {{"scope", "row"}}, "Loss");
//   std::string html = std::move(page).Finish();
//
// Text and values of attributes may come from anywhere: they are escaped, and what no page can hold
// (control characters, bytes that are no UTF-8) becomes visible as \xNN. Names of elements and
// attributes are the program's own. Every element is closed, by Close or at once by Leaf; Finish
// throws Error where one is not.
#ifndef TESSERA_TOOLS_REPORT_MARKUP_H_
#define TESSERA_TOOLS_REPORT_MARKUP_H_

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace tessera::report {

class Markup {
 public:
  // Of an attribute: text, or a number. Fractions have two digits behind the point, as coordinates
  // have.
  class Value {
   public:
    // NOLINTBEGIN(google-explicit-constructor): attributes are written as they are.
    Value(const char* text) : text_(text) {}
    Value(std::string_view text) : text_(text) {}
    Value(const std::string& text) : text_(text) {}
    Value(std::integral auto number) : text_(std::to_string(number)) {}
    Value(double number);
    // NOLINTEND(google-explicit-constructor)

    const std::string& text() const { return text_; }

   private:
    std::string text_;
  };
  using Attributes = std::initializer_list<std::pair<const char*, Value>>;

  Markup& Open(const char* element, Attributes attributes = {});
  Markup& Close();
  Markup& Text(std::string_view text);
  // An element that holds text alone, or nothing.
  Markup& Leaf(const char* element, Attributes attributes = {}, std::string_view text = "");
  // Data for a script, which finds them by the attributes: no script itself.
  Markup& Data(Attributes attributes, const nlohmann::ordered_json& data);
  // Another one's elements, all of them closed.
  Markup& Append(Markup other);

  std::string Finish() &&;

 private:
  std::string text_;
  std::vector<const char*> open_;
};

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_MARKUP_H_
