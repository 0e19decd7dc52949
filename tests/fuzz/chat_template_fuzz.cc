// SPDX-License-Identifier: Apache-2.0
// Chat templates, which are programs from outside (data/chat/), over a conversation of ours.
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const auto* const variables = new nlohmann::ordered_json(
      {{"messages",
        {{{"role", "system"}, {"content", "short"}},
         {{"role", "user"}, {"content", " Grüße "}},
         {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {{{"name", "f"}}}}}}},
       {"bos_token", "<s>"},
       {"add_generation_prompt", true}});
  const auto chat = data::ChatTemplate::Parse(bytes);
  return chat.ok() && chat->Render(*variables, {.max_steps = 200'000, .max_output = 1 << 20}).ok();
}

std::vector<std::string> Seeds() {
  return {
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' + (m['content'] or '') | trim }}{% endfor %}",
      "{%- macro show(x, y=1) -%}{% if x is string %}{{ x[::-1] }}{% elif x is not none %}"
      "{{ x | tojson(indent=2) }}{% endif %}{%- endmacro -%}{{ show(messages[0]) }}",
      "{% set ns = namespace(n=0) %}{% for m in messages if m.role in ['user', \"system\"] %}"
      "{% set ns.n = ns.n + loop.index0 * 2 %}{% generation %}{{ m.content.strip().split(' ') }}"
      "{% endgeneration %}{% break %}{% else %}none{% endfor %}{{ ns.n }}",
      "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | join(',') }}"
      "{# note #}{% raw %}{{ x }}{% endraw %}{{ 1 if bos_token is defined else 2.5e-3 ** 2 }}",
  };
}

// A template of blocks within blocks whose expressions mostly have a value.
class TemplateMaker {
 public:
  explicit TemplateMaker(uint64_t seed) : choices_(seed) {}

  std::string Blocks(int depth) {
    std::string text;
    for (uint64_t n = 1 + choices_.Below(3); n > 0; --n) text += Block(depth);
    return text;
  }

 private:
  std::string Block(int depth) {
    const std::string dash = choices_.OneIn(3) ? "-" : "";
    switch (depth == 0 ? choices_.Below(2) : choices_.Below(8)) {
      case 0:
        return choices_.Of({"text ", "\n", "<|im_start|>", "{# note #}", "é"});
      case 1:
        return "{{" + dash + " " + Value(2) + " " + dash + "}}";
      case 2:
        return "{%" + dash + " if " + Value(2) + " %}" + Blocks(depth - 1) + "{% else %}" +
               Blocks(depth - 1) + "{% endif " + dash + "%}";
      case 3:
        return std::string("{% for m in ") + List() +
               (choices_.OneIn(3) ? " if " + Value(1) : std::string()) + " %}" + Blocks(depth - 1) +
               (choices_.OneIn(3) ? "{% break %}" : "") + "{% endfor %}";
      case 4:
        return "{% set x = " + Value(2) + " %}";
      case 5:
        return "{% macro f(x, y=" + Literal() + ") %}" + Blocks(depth - 1) + "{% endmacro %}{{ f(" +
               Value(1) + ") }}";
      case 6:
        return "{% set ns = namespace(n=" + Literal() + ") %}{% set ns.n = " + Value(1) +
               " %}{{ ns.n }}";
      default:
        return "{% set b %}" + Blocks(depth - 1) + "{% endset %}{{ b" + Filter() + " }}";
    }
  }
  std::string List() {
    return choices_.Of({"messages", "range(3)", "[1, 'a', none]", "messages[::-1]",
                        "{'a': 1}.items()", "'abc'", "messages | selectattr('role')"});
  }
  std::string Literal() {
    return choices_.OneIn(3)
               ? std::to_string(choices_.Number())
               : choices_.Of({"'a'", "''", "none", "true", "[]", "{'k': [1]}", "1.5", "(1, 2)"});
  }
  // Those that any value has, and now and then one that asks for a list or a text.
  std::string Filter() {
    if (choices_.OneIn(16)) {
      return std::string(" | ") +
             choices_.Of({"trim", "length", "list", "first", "last", "join(',')", "sort", "int",
                          "dictsort", "batch(2)", "safe"});
    }
    return std::string(" | ") + choices_.Of({"tojson", "string", "default('d')", "string | upper",
                                             "string | trim", "string | length", "string | title",
                                             "string | replace('a', 'bb')", "tojson(indent=2)"});
  }
  std::string Operator() {
    return choices_.OneIn(16) ? choices_.Of({"+", "*", "<", "in", "not in", "//", "%"})
                              : choices_.Of({"~", "==", "!=", "and", "or"});
  }
  std::string Value(int depth) {
    switch (depth == 0 ? choices_.Below(2) : choices_.Below(8)) {
      case 0:
        return Literal();
      case 1:
        return choices_.Of({"bos_token", "messages", "messages[0].role", "messages[-1]['content']",
                            "bos_token", "add_generation_prompt"});
      case 2:
        return "(" + Value(depth - 1) + " " + Operator() + " " + Value(depth - 1) + ")";
      case 3:
        return "(" + Value(depth - 1) + Filter() + ")";
      case 4:
        return "(" + Value(depth - 1) + " is " +
               choices_.Of({"defined", "none", "string", "mapping", "not number", "iterable"}) +
               ")";
      case 5:
        return "(" + Value(depth - 1) + " if " + Value(depth - 1) + " else " + Value(depth - 1) +
               ")";
      case 6:
        return "not " + Value(depth - 1);
      default:
        return choices_.Of({"bos_token.split('s')", "bos_token[1:]", "messages[1].content.strip()",
                            "range(5) | list", "messages | length", "'a,b'.split(',')[0]"});
    }
  }

  Choices choices_;
};

std::string Make(uint64_t seed) { return TemplateMaker(seed).Blocks(3); }

const FuzzTargetRegistration registration({.name = "chat_template",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"{%",
                                                     "%}",
                                                     "{{",
                                                     "}}",
                                                     "{%-",
                                                     "-%}",
                                                     "endfor",
                                                     "endif",
                                                     "endmacro",
                                                     "endset",
                                                     "set ",
                                                     "for ",
                                                     " in ",
                                                     "call",
                                                     "filter",
                                                     "with",
                                                     "namespace(",
                                                     "range(",
                                                     "loop.",
                                                     "messages",
                                                     "| sort",
                                                     "| unique",
                                                     "| dictsort",
                                                     "| batch(3)",
                                                     "| replace(",
                                                     "| int",
                                                     "| round(",
                                                     ".items()",
                                                     ".split(",
                                                     ".replace(",
                                                     "is divisibleby",
                                                     "not in"},
                                           .make = Make});

}  // namespace
}  // namespace tessera::fuzz
