# SPDX-License-Identifier: Apache-2.0
"""Calls of tools through openai-python: a call that must be made, its result, and the answer to it.

    python tests/parity/tool_calls.py --tessera bazel-bin/tools/tessera [--template NAME=FILE]...

A small model of random weights is served with the templates below, which write tools, calls and results as the
named models' own do, and with those of files (a model's `chat_template.jinja`). Its grammar makes the calls. The marks of calls
are plain text in one run and special tokens in another; every question is asked whole and as a stream, and both have the
same calls. Needs openai, jsonschema, torch and transformers (development only).
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import jsonschema
import openai

# What is around tools, calls and results in each.
CHAT = """{{%- if tools %}}{begin}{{% for tool in tools %}}{{{{ tool | tojson }}}}
{{% endfor %}}{form}
{{% endif %}}{{%- for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content or '' }}}}{{%- if m.tool_calls %}}{calls}{{%- endif %}}
{{% endfor %}}{{%- if add_generation_prompt %}}<|assistant|>{{% endif %}}"""
ONE = "{%- for c in m.tool_calls %}"
TEMPLATES = {
    "qwen": CHAT.format(
        begin="<tools>", form='</tools> <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
        calls=ONE + '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
                    "</tool_call>{% endfor %}"),
    "llama": CHAT.format(
        begin='Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.\n',
        form="", calls=ONE + '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% endfor %}'),
    "mistral": CHAT.format(
        begin="[AVAILABLE_TOOLS]", form="[/AVAILABLE_TOOLS]",
        calls='[TOOL_CALLS] [{% for c in m.tool_calls %}{{ c.function | tojson }}{{ ", " if not loop.last }}{% endfor %}]'),
    "mistral names": CHAT.format(
        begin="[AVAILABLE_TOOLS]", form="[/AVAILABLE_TOOLS]",
        calls=ONE + "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}"),
}
MARKS = ["<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]

WEATHER = {"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"], "additionalProperties": False}
ADD = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99},
                                        "b": {"type": "integer", "minimum": 0, "maximum": 99}},
       "required": ["a", "b"], "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "add": ADD}
TOOLS = [{"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}
         for name, schema in SCHEMAS.items()]
FAILED = []


def check(what, good, detail=""):
    if not good:
        print("FAILED  " + what + (f" ({detail})" if detail != "" else ""), flush=True)
        FAILED.append(what)


def write_folder(folder, template, special):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    torch.manual_seed(1)
    tokens = {t: i for i, t in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(tokens, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>")
    if special:
        fast.add_special_tokens({"additional_special_tokens": MARKS})
    fast.chat_template = template
    fast.save_pretrained(folder)
    config = LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=16384, initializer_range=0.3,
                         bos_token_id=fast.bos_token_id, eos_token_id=fast.eos_token_id)
    LlamaForCausalLM(config).save_pretrained(folder)


@contextlib.contextmanager
def served(tessera, folder):
    command = [tessera, "serve", "--model", folder, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield openai.OpenAI(base_url=server.stdout.readline().split()[-1] + "/v1", api_key="none", max_retries=0)
        finally:
            server.terminate()


def streamed(client, **asked):
    """The calls and the text of a stream, put together by its deltas, and why it ended."""
    calls, text, finish = {}, "", None
    for chunk in client.chat.completions.create(stream=True, **asked):
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        text += choice.delta.content or ""
        for delta in choice.delta.tool_calls or []:
            if delta.index not in calls:
                check("a call's first delta has its name and id", delta.id and delta.function.name)
                calls[delta.index] = [delta.function.name, ""]
            calls[delta.index][1] += delta.function.arguments or ""
    return [tuple(calls[i]) for i in sorted(calls)], text, finish


def conversation(client, what):
    """A call, its result, another call, and words at last; the number of calls."""
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "Is it warm in Rome?"}]
    count = 0
    for turn, choice in enumerate(["required", {"type": "function", "function": {"name": "add"}}, "none"]):
        asked = dict(model=model, messages=messages, tools=TOOLS, tool_choice=choice, max_tokens=300, temperature=1, seed=turn)
        if choice == "none":
            asked["max_tokens"] = 12
        answer = client.chat.completions.create(**asked).choices[0]
        calls, text, finish = streamed(client, **asked)
        said = answer.message
        whole = [(c.function.name, c.function.arguments) for c in said.tool_calls or []]
        check(f"{what}: the stream is the whole answer", calls == whole and finish == answer.finish_reason, (calls, whole))
        if choice == "none":
            check(f"{what}: words", not whole and said.content == text, said)
            return count
        check(f"{what}: ends with calls", finish == "tool_calls" and whole and not (said.content or "").strip(), said)
        for name, arguments in whole:
            count += 1
            check(f"{what}: the tool that was named", choice == "required" or name == "add", name)
            try:
                jsonschema.validate(json.loads(arguments), SCHEMAS[name])
            except (ValueError, KeyError, jsonschema.ValidationError) as error:
                check(f"{what}: arguments fit", False, f"{name} {arguments}: {error}")
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "20"})
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--template", action="append", default=[], metavar="NAME=FILE")
    args = parser.parse_args()
    templates = dict(TEMPLATES)
    for given in args.template:
        name, path = given.split("=", 1)
        with open(path, encoding="utf-8") as file:
            templates[name] = file.read()
    for name, template in templates.items():
        for special in (False, True):
            what = f"{name}, marks as {'special tokens' if special else 'text'}"
            failed = len(FAILED)
            with tempfile.TemporaryDirectory() as folder:
                write_folder(folder, template, special)
                with served(args.tessera, folder) as client:
                    try:
                        count = conversation(client, what)
                    except openai.APIStatusError as error:
                        check(what, False, error.message)
                        count = 0
            if len(FAILED) == failed:
                print(f"ok      {what}: {count} calls", flush=True)
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
