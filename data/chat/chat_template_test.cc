// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_template.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_ordered.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// As tests/parity/chat_templates.py has it.
RenderOptions Options() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mon = 6;
  now.tm_mday = 9;
  now.tm_wday = 3;
  now.tm_hour = 7;
  now.tm_min = 5;
  return {.now = now};
}

StatusOr<Rendering> Rendered(const std::string& text, const Json& variables = Json::object(),
                             const RenderOptions& options = Options()) {
  TESSERA_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(text));
  return chat.Render(variables, options);
}

std::string TextOf(const std::string& text, const Json& variables = Json::object()) {
  const auto rendering = Rendered(text, variables);
  return rendering.ok() ? rendering->text : Message(rendering.status());
}

// std::to_chars has the same digits. Powers of two are what a search for them gets wrong most
// easily.
TEST(ChatTemplateTest, ShowsNumbersByTheirShortestDigits) {
  const auto expected = [](double value) {
    const auto text = [&](std::chars_format format) {
      char digits[40];
      return std::string(digits, std::to_chars(digits, std::end(digits), value, format).ptr);
    };
    const std::string scientific = text(std::chars_format::scientific);
    const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
    if (exponent < -4 || exponent >= 16) return scientific;
    const std::string fixed = text(std::chars_format::fixed);
    return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
  };
  std::vector<double> values = {
      0.0,  -0.0, 0.1,     -0.1,  1.0 / 3, 1e15,  1e16,   9999999999999998.0,    1e-4, 1e-5,
      1e22, 1e23, 123.456, -2e-5, 1e100,   100.0, 5e-324, 1.7976931348623157e308};
  for (int i = -1074; i <= 1023; ++i) values.push_back(std::ldexp(1.0, i));
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
    values.push_back(static_cast<double>(random() % 100000000) / 1000);
  }
  std::istringstream lines(
      TextOf("{% for x in numbers %}{{ x }}\n{% endfor %}", {{"numbers", values}}));
  for (const double value : values) {
    std::string line;
    std::getline(lines, line);
    ASSERT_EQ(line, expected(value));
  }
}

TEST(ChatTemplateTest, ShowsIntegersAsPythonDoes) {
  const auto shown = [](const std::string& number, const std::string& text = "{{ x | tojson }}") {
    const auto json = ParseOrderedJson(R"({"x": )" + number + "}", "text");
    return json.ok() ? TextOf(text, *json) : Message(json.status());
  };
  const std::pair<const char*, const char*> cases[] = {
      {"12345678901234567890", "12345678901234567890"},
      {"18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "18446744073709551616"},
      {"9223372036854775807", "9223372036854775807"},
      {"9223372036854775808", "9223372036854775808"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"-9223372036854775809", "-9223372036854775809"},
      {"123456789012345678901234567890123456789", "123456789012345678901234567890123456789"},
      {"[1, -18446744073709551616]", "[1, -18446744073709551616]"},
      {"{\"maximum\": 18446744073709551616}", "{\"maximum\": 18446744073709551616}"},
      {"1.0", "1.0"},
      {"1E5", "100000.0"},
      {"1e16", "1e+16"},
      {"1e-5", "1e-05"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1e400", "Infinity"},
      {"-1e400", "-Infinity"},
      {"NaN", "NaN"},
      {"0.1", "0.1"},
  };
  for (const auto& [number, expected] : cases) EXPECT_EQ(shown(number), expected) << number;
  constexpr char kBig[] = "18446744073709551616";
  EXPECT_EQ(shown(kBig, "{{ x }}|{{ x ~ '' }}|{{ x is integer }}|{{ x is number }}|{{ x | int }}"),
            "18446744073709551616|18446744073709551616|True|True|18446744073709551616");
  EXPECT_EQ(shown(kBig, "{{ x > 5 }}{{ x == x }}{{ x < 1e30 }}{{ -5 < x }}{{ x == 5 }}{{ [x] }}"),
            "TrueTrueTrueTrueFalse[18446744073709551616]");
  EXPECT_EQ(shown("-18446744073709551616", "{{ x < -5 }}{{ 1e30 > x }}{{ x is float }}"),
            "TrueTrueFalse");
  EXPECT_EQ(shown("[99999999999999999999, 100000000000000000000, -99999999999999999999]",
                  "{{ x | sort }}"),
            "[-99999999999999999999, 99999999999999999999, 100000000000000000000]");
  EXPECT_EQ(shown(kBig, "{{ x + 1 }}"),
            "chat_template:1: an integer beyond 64 bits is computed with");
}

// datetime.now().strftime of Python 3.13.
TEST(ChatTemplateTest, WritesTheTimeAsPythonDoes) {
  const auto now = [](const std::string& format) {
    return TextOf("{{ strftime_now('" + format + "') }}");
  };
  EXPECT_EQ(now("%f"), "000000");
  EXPECT_EQ(now("%H:%M:%S.%f"), "07:05:00.000000");
  EXPECT_EQ(now("%%f"), "%f");
  EXPECT_EQ(now("%%%f"), "%000000");
  EXPECT_EQ(now("[%z%Z%:z]"), "[]");
  EXPECT_EQ(now(""), "");
  EXPECT_EQ(now("%d %b %Y"), "09 Jul 2025");
  EXPECT_EQ(now("%-d"), "9");
  const std::string words(1000, 'x');
  EXPECT_EQ(now(words), words);
  EXPECT_EQ(now("%9999999d"), "chat_template:1: strftime_now makes too long a text");
  const auto clock = Rendered("{{ strftime_now('%f') }}", Json::object(), {});
  ASSERT_TRUE(clock.ok());
  EXPECT_EQ(clock->text.size(), 6u);
  EXPECT_EQ(clock->text.find_first_not_of("0123456789"), std::string::npos);
}

// Each level is the same few functions, so that a thread of little stack ends before the bound of
// levels does.
TEST(ChatTemplateTest, RecursionEndsBeforeASmallStackDoes) {
  const std::string recursion = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
  const std::string nested = "{{ " + std::string(190, '(') + "1" + std::string(190, ')') + " }}";
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{256} << 10);
  std::string texts[] = {recursion, nested};
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* held) -> void* {
                  auto* const two = static_cast<std::string*>(held);
                  for (int i = 0; i < 2; ++i) two[i] = TextOf(two[i]);
                  return nullptr;
                },
                texts),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(texts[0], "chat_template:1: the template recurses too deeply");
  EXPECT_TRUE(texts[1] == "1" || texts[1].find("nested too deeply") != std::string::npos)
      << texts[1];
}

TEST(ChatTemplateTest, ComparesLargeMappingsInTime) {
  std::string forward, backward;
  for (int i = 0; i < 100'000; ++i) {
    forward += Concat(i == 0 ? "" : ",", "\"", i, "\":0");
    backward += Concat(i == 0 ? "" : ",", "\"", 99'999 - i, "\":0");
  }
  const auto both = ParseOrderedJson("{\"a\":{" + forward + "},\"b\":{" + backward + "}}", "text");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(TextOf("{{ a == b }}", *both), "True");
}

// What Jinja makes of each template, with transformers' settings; and that it refuses the same.
TEST(ChatTemplateTest, RendersAsTransformersDoes) {
  const auto file = ReadFile("data/chat/testdata/chat_templates.json");
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const Json cases = Json::parse(*file);
  int rendered = 0;
  int refused = 0;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>() + ": " + c["template"].get<std::string>());
    const auto found = Rendered(c["template"], c["variables"]);
    ASSERT_EQ(found.ok(), c.contains("text")) << Message(found.status());
    if (!found.ok()) {
      EXPECT_TRUE(found.status().message().starts_with("chat_template:"))
          << Message(found.status());
      ++refused;
      continue;
    }
    ++rendered;
    EXPECT_EQ(found->text, c["text"].get<std::string>());
    std::vector<std::string> generated;
    for (const auto& [begin, end] : found->generated) {
      generated.push_back(found->text.substr(begin, end - begin));
    }
    EXPECT_EQ(generated, c["generated"].get<std::vector<std::string>>());
  }
  EXPECT_GT(rendered, 60);
  EXPECT_GT(refused, 30);
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(TextOf("a\n{% if x %}\n\n{{ y.z }}{% endif %}", {{"x", true}}),
            "chat_template:4: 'y' is undefined");
  EXPECT_EQ(TextOf("{# a\n#}\n{% for x in [1] %}\n{{ raise_exception('not ' ~ x) }}{% endfor %}"),
            "chat_template:4: not 1");
  EXPECT_EQ(TextOf("\n{% macro m(a) %}\n{{ a / 0 }}{% endmacro %}\n{{ m(1) }}"),
            "chat_template:3: division by zero");
  EXPECT_EQ(Message(ChatTemplate::Parse("\n\n{{ 1 +", "m/chat_template.jinja").status()),
            "m/chat_template.jinja:3: unexpected end of template");
  EXPECT_EQ(Message(ChatTemplate::Parse("a\xff").status()),
            "chat_template: invalid UTF-8 at byte 1");
}

TEST(ChatTemplateTest, SpansOfGenerationAreBytes) {
  const auto found =
      Rendered("{% generation %}é{% endgeneration %}東{% generation %}x{% endgeneration %}");
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->text, "é東x");
  EXPECT_EQ(found->generated, (std::vector<Rendering::Span>{{0, 2}, {5, 6}}));
}

// A template is a program from outside: it ends soon, and so does what it makes.
TEST(ChatTemplateTest, IsBounded) {
  const auto refused = [](const std::string& text, const std::string& why,
                          const RenderOptions& options = {}) {
    const auto found = Rendered(text, Json::object(), options);
    ASSERT_FALSE(found.ok()) << text.substr(0, 80);
    EXPECT_NE(Message(found.status()).find(why), std::string::npos) << Message(found.status());
  };
  const std::string loop = "{% for i in range(100000) %}";
  refused(loop + loop + "{% endfor %}{% endfor %}", "too many steps");
  refused("{{ 'a' * 10000000000 }}", "too many steps");
  refused("{{ [1] * 10000000000 }}", "too many steps");
  refused("{{ 'a' * 9223372036854775807 }}", "too many steps");
  refused("{% set ns = namespace(x='ab') %}" + loop + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
          "too many steps");
  refused("{% set ns = namespace(x=[1]) %}" + loop + "{% set ns.x = [ns.x] %}{% endfor %}",
          "nested too deeply");
  refused(
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "a value is too large");
  refused("{{ 'abcdef' }}", "writes too much", {.max_output = 5});
  refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recurses too deeply");
  refused("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}",
          "nested too deeply");
  refused("{{ " + std::string(100000, '[') + "1" + std::string(100000, ']') + " }}",
          "nested too deeply");
  refused("{{ " + std::string(100000, '-') + "1 }}", "nested too deeply");
  std::string chain = "{{ 1";
  for (int i = 0; i < 10000; ++i) chain += " + 1";
  refused(chain + " }}", "nested too deeply");
  std::string blocks;
  for (int i = 0; i < 1000; ++i) blocks += "{% if 1 %}";
  refused(blocks, "nested too deeply");
  refused("{{ 9223372036854775807 + 1 }}", "too large");
  refused("{{ 99999999999999999999 }}", "too large");
  refused("{{ 3 ** 100 }}", "too large");

  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  EXPECT_EQ(TextOf("x", {{"messages", deep}}),
            "chat_template: the variables are nested too deeply");
  EXPECT_EQ(TextOf("x", Json::array()), "chat_template: the variables are no object");
}

// Macros and namespaces that hold one another are gone with the rendering (a leak checker sees it),
// and what a macro was written in outlives its block.
TEST(ChatTemplateTest, MacrosOutliveTheirBlocks) {
  EXPECT_EQ(TextOf("{% set ns = namespace() %}{% for x in [1, 2] %}"
                   "{% macro m() %}{{ x }}{{ ns.m is defined }}{% endmacro %}{% set ns.m = m %}"
                   "{% set ns.self = ns %}{% endfor %}{{ ns.m() }}"),
            "2True");
}

TEST(ChatTemplateTest, OneTemplateRendersManyTimes) {
  const auto chat = ChatTemplate::Parse("{% set n = n + 1 %}{{ n }}");
  ASSERT_TRUE(chat.ok()) << Message(chat.status());
  for (const int n : {1, 5, 1}) {
    const auto found = chat->Render({{"n", n}});
    ASSERT_TRUE(found.ok()) << Message(found.status());
    EXPECT_EQ(found->text, std::to_string(n + 1));
  }
}

}  // namespace
}  // namespace tessera::data
