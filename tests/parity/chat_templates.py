# SPDX-License-Identifier: Apache-2.0
"""Chat templates against transformers: goldens for the unit test.

    pip install 'transformers<5' jinja2
    python tests/parity/chat_templates.py > data/chat/testdata/chat_templates.json

Each case has a template, written here in the manner of a known family or for one part of the language, its variables,
what Jinja with transformers' settings makes of them, and what `{% generation %}` encloses; or that Jinja refuses it.
"""
import datetime
import json
import sys

from transformers.utils import chat_template_utils

KEYS = ["messages", "tools", "documents", "add_generation_prompt"]
NOW = datetime.datetime(2025, 7, 9, 7, 5)

SYSTEM = {"role": "system", "content": "You are terse."}
TURNS = [
    {"role": "user", "content": " What is 2+2? "},
    {"role": "assistant", "content": "It's \"4\".\n"},
    {"role": "user", "content": "Grüße aus 東京 👋, <b>&amp;"},
]
TOOLS = [{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather at a place — now",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "a city"},
                "days": {"type": ["integer", "null"], "default": None, "enum": [1, 2.5, 1e30, -0.0, True]},
                "items": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["place"],
        },
    },
}]
CALLS = [
    SYSTEM,
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need a tool.\n",
     "tool_calls": [{"type": "function", "function": {"name": "weather",
                                                      "arguments": {"place": "Oslo", "days": 2}}}]},
    {"role": "tool", "content": "{\"sun\": true}"},
    {"role": "tool", "content": "second"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSunny."},
]

FAMILIES = {
    "chatml": """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""",
    "llama2": """
{%- if messages[0]['role'] == 'system' %}
  {%- set rest = messages[1:] %}
  {%- set system = '<<SYS>>\\n' ~ messages[0]['content'] ~ '\\n<</SYS>>\\n\\n' %}
{%- else %}
  {%- set rest = messages %}{% set system = false %}
{%- endif %}
{%- for m in rest %}
  {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('roles must alternate') }}
  {%- endif %}
  {%- set content = system + m['content'] if loop.index0 == 0 and system is not false else m['content'] %}
  {%- if m.role == 'user' %}
    {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
  {%- elif m.role == 'assistant' %}
    {%- generation %}{{ ' ' ~ content | trim ~ ' ' ~ eos_token }}{% endgeneration -%}
  {%- endif %}
{%- endfor %}""",
    "llama3": """{{- bos_token }}
{%- if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message, taken out #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\nToday: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "Functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}{{ "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}{{ ns.index }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif (message.tool_calls is defined and message.tool_calls is not none) %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- ', "id": "none"' }}
            {%- endif %}
            {{- "}" + ("]" + eos_token if loop.last else ", ") }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULT] {"content": ' + content|string + "}" }}
    {%- endif %}
{%- endfor %}
""",
    "qwen3": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n{\\"name\\": <name>}<|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {{- '<|im_start|>' + message.role }}
        {% generation %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
        {%- endgeneration %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\\n\\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start>' + role + '\\n' + (first if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("content of no kind") }}
    {%- endif -%}
    {{ '<end>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start>model\\n'}}{%- endif -%}
""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "chatglm": """[gMASK]<sop>{%- if tools is defined and tools -%}<|system|>
{% for tool in tools %}
{%- set function = tool.function if tool.get("function") else tool %}

## {{ function.name }}

{{ function | tojson(indent=4, ensure_ascii=False) }}
Called with JSON.
{%- endfor %}
{%- endif %}
{%- macro visible(content) -%}
{%- if content is string -%}{{ content }}{%- elif content is iterable and content is not mapping -%}
{%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
{%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{%- elif m.role == 'assistant' -%}<|assistant|>{{ '\\n' + visible(m.content).strip() if visible(m.content).strip() }}
{%- elif m.role == 'tool' -%}{%- if loop.first or messages[loop.index0 - 1].role != "tool" -%}<|observation|>{%- endif %}
<r>{{ m.content if m.content is string else m.content | tojson }}</r>
{%- else -%}<|{{ m.role }}|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{{- '<|assistant|>' if add_generation_prompt else '' -}}
""",
    "phi": """{% for message in messages %}{% if message['role'] == 'system' and message['content'] and tools is not none and message['tools'] is not none %}{{'<|' + message['role'] + '|>' + message['content'] + '<|end|>'}}{% elif message['role'] == 'user' %}{{'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n'}}{% else %}{{ '<|' ~ message['role'] ~ '|>' ~ message.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' + '\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "recursive_types": """{%- macro kind(spec, level=0) -%}
{%- if spec.type == "array" -%}{{ kind(spec['items'], level + 1) }}[]
{%- elif spec.type is iterable and spec.type is not string -%}{{ spec.type | join(" | ") }}
{%- elif spec.type == "object" -%}{
{% for name, part in spec.properties.items() -%}
{{ "  " * (level + 1) }}{{ name }}{{ "?" if name not in (spec.required or []) }}: {{ kind(part, level + 1) }}{{ ", // " + part.description if part.description is defined }}
{% endfor -%}
{{ "  " * level }}}
{%- else -%}{{ spec.type or "any" }}{%- endif -%}
{%- endmacro -%}
{% for tool in tools or [] %}type {{ tool.function.name }} = {{ kind(tool.function.parameters) }};
{% endfor %}{{ messages | map(attribute='role') | unique | join(',') }}""",
}

# One part of the language each.
PARTS = [
    "{{ 1 }} {{ -2 }} {{ 1.5 }} {{ 1e20 }} {{ 1e16 }} {{ 123456789.125 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1/3 }} {{ 7//2 }} {{ -7//2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2**10 }} {{ 2**-1 }} {{ 7.5//2 }} {{ -7.5 % 2 }} {{ 1_000 }}",
    "{{ true }} {{ none }} {{ True and 0 }} {{ '' or 'x' }} {{ not [] }} {{ 1 == 1.0 == true }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == undefined_name }}",
    "{{ [1, 'a', \"it's\", 'q\"', 'both\\'\"', 1.0, none, true, {'k': [1]}, (1,), (1, 2), ()] }}",
    "{{ 'tab\\there\\nline\\\\ \\x41 \\u00e9 \\q' }}|{{ ['tab\\t\\n\\\\ \\x01 é \\u200b 東 \\xa0'] }}",
    "{{ 'abc'[::-1] }} {{ 'aébcd'[1:3] }} {{ 'abc'[-1] }} {{ 'abc'[5:] }} {{ [1,2,3,4,5][::2] }} {{ [1,2,3,4,5][-2:] }} {{ [1,2,3,4,5][4:1:-1] }} {{ [1,2,3][:-1] }} {{ (1,2,3)[1:] }} {{ [1,2,3][5] is undefined }} {{ [1,2,3][::-2] }} {{ 'x'[1:0:-1] }} {{ [1,2,3][-10:10] }} {{ [1,2][10:-10:-1] }}",
    "{{ 'a' ~ 1 ~ none ~ missing ~ [1] }} {{ 'ab' * 3 }} {{ [0] * 2 }} {{ [1] + [2] }} {{ 'a' in 'abc' }} {{ 'z' not in ['a'] }} {{ 'k' in {'k': 1} }} {{ 1 in missing }} {{ 3 * 'x' }} {{ -'1'|int }}",
    "{{ missing }}|{{ missing is defined }}|{{ messages[0].nothing is defined }}|{{ missing | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ '' | d('d', boolean=true) }}|{{ messages[0].x is undefined }}|{{ missing | length }}|{% for x in missing %}a{% else %}none{% endfor %}",
    "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,c'.split(',') }}|{{ 'a b  c '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a b c'.split(maxsplit=1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ 'a  b c'.rsplit(none, 1) }}|{{ 'Ab'.upper() ~ 'Ab'.lower() ~ 'ab cd'.title() ~ 'aB'.capitalize() ~ 'aB'.swapcase() }}|{{ 'éß'.upper() ~ 'ÉÀΣα'.lower() }}",
    "{{ 'abcabc'.replace('b', 'x') }}|{{ 'abcabc'.replace('b', 'x', 1) }}|{{ 'abc'.replace('', '-') }}|{{ 'abc'.find('c') }}|{{ 'éc'.find('c') }}|{{ 'abc'.find('z') }}|{{ 'abcb'.rfind('b') }}|{{ 'abab'.count('ab') }}|{{ ','.join(['a', 'b']) }}|{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'a\\nb\\n'.splitlines(true) }}|{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}",
    "{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'AB1'.isupper() }} {{ 'ab'.islower() }} {{ '1'.islower() }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }}",
    "{{ {'a': 1, 'b': 2}.get('a') }} {{ {'a': 1}.get('z') }} {{ {'a': 1}.get('z', 5) }} {% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }} {{ {'b': 1}|items|list }} {{ {'a': 1, 'a': 2} }} {{ {1: 'x'}[1] }} {{ dict(a=1, b='x') }}",
    "{{ x.items }}" if False else "{{ 'yes' if {'items': 1}.items else 'no' }} {{ {'items': 1}['items'] }} {{ {'items': 1}.items is callable }} {{ {'get': 7}.get is string }}",
    "{{ 'a' | tojson }} {{ 'é\\u2028<>&\\'\"\\n\\x01\\x7f' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, 2.0, 1e100, none, true, 'x', [], {}] | tojson }} {{ {'b': [1, {'c': 2}], 'a': []} | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {'a': [1, 2]} | tojson(separators=(',', ':')) }} {{ {1: 2, true: 3, none: 4} | tojson }} {{ (1, 2) | tojson }} {{ [1] | tojson(indent='\\t') }} {{ [1] | tojson(indent=0) }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ [1, 2] | sort(reverse=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }} {{ [1, 1, 2] | unique | list }} {{ ['a', 'A'] | unique | list }} {{ [1, 2, 3] | sum }} {{ [1, 5, 2] | max }} {{ [4, 2] | min }} {{ ['b', 'A'] | min }} {{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }}",
    "{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ [] | first is undefined }} {{ 'abc' | list }} {{ 'abc' | length }} {{ 'aé' | count }} {{ ['a', 1, none] | join('-') }} {{ messages | join(',', attribute='role') }} {{ 'a b' | title }} {{ \"they're x-ray (foo)\" | title }} {{ 'aBC' | capitalize }} {{ 'x' | upper }} {{ ' x ' | trim }}| {{ 'xyx' | trim('x') }} {{ 5 | string }} {{ '7' | int }} {{ '7.9' | int }} {{ 'z' | int }} {{ 'z' | int(-1) }} {{ '2.5' | float }} {{ 'z' | float }} {{ 3.7 | int }} {{ 2.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ -3 | abs }} {{ 'a b c' | wordcount }} {{ 'aXbX' | replace('X', '.') }} {{ 'l1\\nl2\\n\\nl3' | indent }} {{ 'l1\\nl2' | indent(2, true) }} {{ 'l1\\n\\nl2' | indent('> ', blank=true) }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [0, 1, ''] | select | list }} {{ ['a', 'B'] | map('upper') | list }} {{ [1, 2] | map('string') | join('+') }} {{ messages | map(attribute='nope', default='-') | join }} {{ messages | selectattr('tool_calls', 'defined') | list }} {{ [[1, 2]] | map('first') | list }} {{ ['a b'] | map('replace', ' ', '_') | list }} {{ 'yes' if messages | selectattr('role', 'equalto', 'nobody') else 'no' }} {{ [{'a': {'b': 3}}] | map(attribute='a.b') | list }} {{ [1, 5, 9] | select('gt', 3) | list }}",
    "{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ {} is sequence }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is none }} {{ none is defined }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ true is boolean }} {{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'a' is in ['a'] }} {{ 1 is not none }} {{ 1 is eq 1 }} {{ 'a' is lower }} {{ missing is none }} {{ 1 is sameas true }} {{ missing is iterable }} {{ missing is sequence }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% set ns = namespace(a=1, b=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set t %}block {{ x }}{% endset %}[{{ t }}]{% set u | upper %}block{% endset %}{{ u }}",
    "{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}{% for i in 'abc' %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }};{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for i in range(1, 8, 3) %}{{ i }}{% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{% for i in [1,2] %}{% for j in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% macro m(a, b='B', c=none) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(a=1, c=3) }}{{ m() }}{% macro outer() %}{{ caller('x') }}{{ late }}{% endmacro %}{% set late = 'L' %}{% call(y) outer() %}[{{ y }}]{% endcall %}{{ m(1) | upper }}{{ m('a')|length }}",
    "  {% if true %}\n  a\n  {% endif %}\nb  {%- if true -%}  c  {%- endif -%}  d\n  {{ 'e' }}\n  {#- note -#}  f\n{# note #}\ng {%+ if true %}h{% endif +%}\n i\n\n{% raw %} {{ x }} {% y %} {% endraw %}\n j\n   {%- set q = 1 %}\n   k {{- ' l ' -}} m\n",
    "a\r\nb\r\n{% if true %}\r\nc{% endif %}\r\n",
    "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% filter upper %}text {{ 'x' }}{% endfilter %}{{ 'a' if false }}|{{ 'a' if false else 'b' if false else 'c' }}{{ (1 if true else 2) + 1 }}",
    "a {% generation %}all of it {{ messages[0].role }}{% endgeneration %} x",
    "a{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{{ strftime_now('%d %B %Y %H:%M') }}",
    "{{ {'a': {'b': 1}} }}{{ {'a': {}}['a'] }}{{ {} }}{{ [] }}",
    "{{ messages[0]['role'] }}{{ messages.0.role }}{{ messages[-1].role }}{{ (messages | last).role }}{{ messages|length }}{{ messages[0]|attr('role') is defined }}",
    "{{ 'a' 'b' }}{{ \"x\" ~ 'y' }}{{ 10 | string | length }}{{ 1 if not missing is defined else 2 }}{{ not true or true }}{{ 1 + 2 * 3 - 4 }}{{ (1, 2) | length }}{{ 2 ** 3 ** 2 }}{{ -1 | abs }}{{ 'ab' | first | upper }}",
    # What Jinja refuses.
    "{{ missing.x }}", "{{ messages[9].role }}", "{{ missing + 1 }}", "{{ 'a' + 1 }}", "{{ 1 | nofilter }}", "{{ 1 is notest }}",
    "{{ messages.append(1) }}", "{{ messages[0].pop('role') }}", "{{ raise_exception('no way') }}", "{% if %}x{% endif %}",
    "{% for x in y %}", "{{ 'open }}", "{% unknown %}", "{{ 1 / 0 }}", "{{ [1] < 2 }}", "{{ missing() }}", "{{ 1 in 2 }}",
    "{% set x.y = 1 %}", "{% break %}", "{{ missing | tojson }}", "{{ [1, 2] | map('nofilter') | list }}", "{{ {[1]: 2} }}",
    "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{{ 1 < 'a' }}", "{{ (1 }}", "{{ 1 ) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{{ 'abc'.nomethod() }}", "{{ range(1000000) }}", "{{ ''.__class__.x }}",
    "{% endif %}", "{% if true %}{% endfor %}", "{{ }}", "{{ 1 2 }}", "{% generation %}{% break %}{% endgeneration %}",
]


def render(template, variables):
    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    chat_template_utils.datetime = Fixed
    compiled = chat_template_utils._compile_jinja_template(template)
    variables = dict(variables)
    text, spans = chat_template_utils._render_with_assistant_indices(
        compiled, **{name: variables.pop(name) for name in KEYS}, **variables)
    return text, [text[a:b] for a, b in spans]


def main():
    common = {"bos_token": "<s>", "eos_token": "</s>"}
    conversations = [
        {"messages": TURNS, **common, "add_generation_prompt": True},
        {"messages": [SYSTEM] + TURNS, **common},
        {"messages": CALLS, "tools": TOOLS, **common, "add_generation_prompt": True, "enable_thinking": False},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}]}], **common},
    ]
    cases = []
    for name, template in FAMILIES.items():
        for variables in conversations:
            cases.append((name, template, variables))
    for i, template in enumerate(PARTS):
        cases.append((f"part {i}", template, conversations[1]))
    out = []
    for name, template, variables in cases:
        variables = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
        case = {"name": name, "template": template, "variables": variables}
        try:
            case["text"], case["generated"] = render(template, variables)
        except Exception as error:
            case["refused"] = str(error)
        out.append(case)
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
