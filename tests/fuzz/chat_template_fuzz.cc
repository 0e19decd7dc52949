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
                                                     "not in"}});

}  // namespace
}  // namespace tessera::fuzz
