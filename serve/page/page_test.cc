// SPDX-License-Identifier: Apache-2.0
#include "serve/page/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/base64.h"
#include "base/options.h"
#include "models/generation/generation_config.h"
#include "net/html/strict_html.h"
#include "tests/process/shell.h"

namespace tessera::serve {
namespace {

std::vector<net::Element> Elements() {
  const auto elements = net::ParseStrictly(Page());
  EXPECT_TRUE(elements.ok()) << Message(elements.status());
  return elements.ok() ? *elements : std::vector<net::Element>();
}

// In hexadecimal digits, by the system.
std::string Sha256(const std::string& text) {
  const std::string path = testing::TempDir() + "/hashed";
  std::ofstream(path, std::ios::binary) << text;
  return RunShell("sha256sum < '" + path + "'").output.substr(0, 64);
}

// The hash that the policy allows for "style-src" or "script-src", in hexadecimal digits.
std::string Allowed(const std::string& directive) {
  const std::string policy(PageSecurityPolicy());
  const std::string opening = directive + " 'sha256-";
  const size_t at = policy.find(opening);
  if (at == std::string::npos) return "no " + directive;
  const size_t begin = at + opening.size();
  const std::optional<std::string> bytes =
      DecodeBase64(policy.substr(begin, policy.find('\'', begin) - begin));
  return absl::BytesToHexString(bytes.value_or(""));
}

TEST(ServePageTest, ThePolicyAllowsItsOwnStyleAndScript) {
  const std::vector<net::Element> elements = Elements();
  const auto styles = Find(elements, "style");
  const auto scripts = Find(elements, "script");
  ASSERT_EQ(styles.size(), 1u);
  ASSERT_EQ(scripts.size(), 1u);
  EXPECT_EQ(Allowed("style-src"), Sha256(styles[0].text));
  EXPECT_EQ(Allowed("script-src"), Sha256(scripts[0].text));
  const std::string_view policy = PageSecurityPolicy();
  EXPECT_TRUE(policy.starts_with("default-src 'none'; connect-src 'self';")) << policy;
  EXPECT_TRUE(policy.ends_with("; frame-ancestors 'none'")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string_view::npos);
}

TEST(ServePageTest, NeedsNothingElse) {
  const std::string page = Page();
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_EQ(page.find("//www"), std::string::npos);
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_LT(page.size(), 50000u);
  for (const net::Element& element : Elements()) {
    EXPECT_FALSE(element.attributes.contains("src")) << element.name;
    EXPECT_FALSE(element.attributes.contains("style")) << element.name;  // the policy forbids it
    for (const auto& [name, value] : element.attributes) EXPECT_NE(name.substr(0, 2), "on");
  }
}

TEST(ServePageTest, WhatModelsWriteIsText) {
  const std::string script = Find(Elements(), "script").at(0).text;
  for (const char* markup : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                             "DOMParser", "eval(", "Function("}) {
    EXPECT_EQ(script.find(markup), std::string::npos) << markup;
  }
}

TEST(ServePageTest, EveryControlHasAName) {
  const std::vector<net::Element> elements = Elements();
  for (const char* name : {"input", "select", "textarea"}) {
    for (const net::Element& control : Find(elements, name)) {
      const std::string id = control.attributes.at("id");
      const auto labels = Find(elements, "label");
      EXPECT_TRUE(std::any_of(labels.begin(), labels.end(), [&](const net::Element& label) {
        return label.attributes.at("for") == id && !label.text.empty();
      })) << id;
    }
  }
  for (const net::Element& button : Find(elements, "button")) {
    EXPECT_TRUE(button.attributes.contains("data-idle") || !button.text.empty());
    EXPECT_TRUE(button.attributes.contains("type")) << button.text;
  }
}

TEST(ServePageTest, TheFormHasTheGenerationSettings) {
  const std::vector<net::Element> elements = Elements();
  std::set<std::string> names;
  for (const char* kind : {"input", "select"}) {
    for (const net::Element& control : Find(elements, kind)) {
      const auto name = control.attributes.find("name");
      if (name == control.attributes.end()) continue;
      names.insert(name->second);
      const Option* const option = models::GenerationConfig::Table().Find(name->second);
      ASSERT_NE(option, nullptr) << name->second;
      EXPECT_EQ(control.attributes.at("title"), option->help);
    }
  }
  for (const char* key : {"temperature", "top_p", "min_p", "seed", "max_new_tokens", "do_sample"}) {
    EXPECT_TRUE(names.contains(key)) << key;
  }
  EXPECT_FALSE(names.contains("num_beams"));
}

// What the script looks up by a literal id is in the page.
TEST(ServePageTest, TheScriptFindsWhatItLooksFor) {
  const std::string page = Page();
  const std::string script = Find(Elements(), "script").at(0).text;
  int found = 0;
  for (size_t at = script.find("$('#"); at != std::string::npos; at = script.find("$('#", at + 1)) {
    const std::string id = script.substr(at + 4, script.find('\'', at + 4) - at - 4);
    EXPECT_NE(page.find(" id=\"" + id + "\""), std::string::npos) << id;
    ++found;
  }
  EXPECT_GT(found, 30);
}

}  // namespace
}  // namespace tessera::serve
