// SPDX-License-Identifier: Apache-2.0
#include "serve/page/page.h"

#include <cctype>
#include <optional>
#include <set>

#include "absl/strings/str_replace.h"
#include "base/options.h"
#include "models/generation/generation_config.h"
#include "net/html/page_assets.h"
#include "nlohmann/json.hpp"
#include "serve/page/page_assets.h"

namespace tessera::serve {

namespace {

// A new text of the page has so many tokens at most, unless the form says otherwise.
constexpr char kNewTokens[] = "256";

std::string InAttribute(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\"", "&quot;"}, {"&", "&amp;"}});
}

// "top_p" as a person reads it: "Top p".
std::string Title(std::string key) {
  for (char& c : key) c = c == '_' ? ' ' : c;
  key[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(key[0])));
  return key;
}

std::string FieldOf(const Option& option) {
  const std::string names = Concat(" id=\"", option.key, "\" name=\"", option.key, "\" title=\"",
                                   InAttribute(option.help), "\"");
  std::string field;
  if (option.kind == Option::Kind::kBool) {
    field =
        Concat("<select", names, "><option value=\"\">default</option>",
               "<option value=\"true\">yes</option><option value=\"false\">no</option></select>");
  } else {
    const auto bound = [](const char* name, const std::optional<double>& value) {
      return value ? Concat(" ", name, "=\"", nlohmann::json(*value).dump(), "\"") : std::string();
    };
    constexpr double kMostWhole = 9007199254740991;  // of a browser's numbers
    const bool whole = option.kind == Option::Kind::kInteger;
    const bool begins = option.key == "max_new_tokens";
    std::optional<double> most = option.notes.most;
    if (!most && whole) most = kMostWhole;
    field =
        Concat("<input", names, " type=\"number\"", bound("min", option.notes.least),
               begins ? std::string() : bound("max", most), " step=\"", whole ? "1" : "any", "\"",
               begins ? Concat(" value=\"", kNewTokens, "\"") : "", " placeholder=\"default\">");
  }
  return Concat("<label for=\"", option.key, "\">", Title(option.key), "\n", field, "\n</label>\n");
}

// The numbers and switches among the generation settings; a server searches no beams.
std::string SettingsForm() {
  const std::set<std::string> of_beams = {"num_beams", "length_penalty", "early_stopping"};
  std::string form;
  for (const Option& option : models::GenerationConfig::Table().options()) {
    const bool shown = option.kind == Option::Kind::kBool ||
                       option.kind == Option::Kind::kInteger ||
                       option.kind == Option::Kind::kNumber;
    if (shown && !of_beams.contains(option.key)) form += FieldOf(option);
  }
  return form;
}

}  // namespace

std::string Page() {
  return net::Fill(kPageAssets.html, {{"style", std::string(kPageAssets.css)},
                                      {"settings", SettingsForm()},
                                      {"script", std::string(kPageAssets.js)}});
}

std::string_view PageSecurityPolicy() {
  // Nobody shows the page within another, where what is clicked may not be what is seen.
  static const std::string policy = net::SecurityPolicy(kPageAssets) + "; frame-ancestors 'none'";
  return policy;
}

}  // namespace tessera::serve
