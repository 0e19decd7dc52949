# SPDX-License-Identifier: Apache-2.0
"""Answers written under random JSON Schemas, read by jsonschema; and documents of those schemas.

    python tests/parity/json_schemas.py --walks bazel-bin/tests/parity/json_walks \
        --tokenizer byte --tokenizer path/to/gpt2 --schemas 2000
    python tests/parity/json_schemas.py --tessera bazel-bin/tools/tessera --model MODEL --schemas 2000
    python tests/parity/json_schemas.py --tessera bazel-bin/tools/tessera --model MODEL --cost 10

The first writes texts without any sense, the second those of a model, which a server samples. The third
compares a token's processor time with a schema and without, in turns.

Every answer that is complete fits its schema, every answer is complete where its tokens sufficed at
the beginning, and every document that fits is accepted, compact and indented.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import statistics
import string
import subprocess
import sys
import urllib.error
import urllib.request

import jsonschema

WORDS = ["a", "ab", "name", "größe", "x y", 'q"t', "id", "items", "value", "", "\n", "日本"]


def integer_schema(r):
    schema = {"type": "integer"}
    low = r.choice([None, r.randint(-1000, 1000), r.randint(-9, 9)])
    if low is not None:
        schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.5:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = low + r.randint(3, 2000)
    elif r.random() < 0.3:
        schema["maximum"] = r.randint(-50, 50)
    if r.random() < 0.1:
        schema["multipleOf"] = r.choice([2, 3, 10])
    return schema


def number_schema(r):
    schema = {"type": "number"}
    if r.random() < 0.6:
        low = round(r.uniform(-20, 20), r.randint(0, 3))
        schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.6:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = round(low + r.uniform(1, 50), 2)
    return schema


PATTERNS = ["^[a-z]{2,5}$", "^(foo|ba+r)$", "x", "^\\d{3}-\\d{4}$", "[A-F]+$", "^[^b]*$", "^a|b$"]


def string_schema(r):
    schema = {"type": "string"}
    kind = r.random()
    if kind < 0.2:
        schema["pattern"] = r.choice(PATTERNS)
    elif kind < 0.35:
        schema["format"] = r.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])
    elif kind < 0.6:
        schema["minLength"] = r.randint(0, 6)
        if r.random() < 0.7:
            schema["maxLength"] = schema["minLength"] + r.randint(0, 20)
    return schema


def array_schema(r, depth):
    schema = {"type": "array"}
    if r.random() < 0.8:
        schema["items"] = any_schema(r, depth - 1)
    if r.random() < 0.3:
        schema["prefixItems"] = [any_schema(r, depth - 1) for _ in range(r.randint(1, 3))]
        if r.random() < 0.4:
            schema["items"] = False
    elif r.random() < 0.6:
        schema["minItems"] = r.randint(0, 3)
        if r.random() < 0.6:
            schema["maxItems"] = schema["minItems"] + r.randint(0, 4)
    return schema


def object_schema(r, depth):
    names = r.sample(WORDS, r.randint(0, 5))
    schema = {"type": "object", "properties": {n: any_schema(r, depth - 1) for n in names}}
    schema["required"] = [n for n in names if r.random() < 0.5]
    if r.random() < 0.6:
        schema["additionalProperties"] = r.choice([False, True, {"type": "integer"}])
    if r.random() < 0.15:
        schema["minProperties"] = r.randint(0, len(names))
    if r.random() < 0.15:
        schema["maxProperties"] = len(names) + r.randint(0, 2)
    return schema


def any_schema(r, depth):
    simple = [
        integer_schema, number_schema, string_schema,
        lambda r: {"type": "boolean"},
        lambda r: {"type": "null"},
        lambda r: {"enum": r.sample(["red", 1, None, 2.5, "é", {"k": [1, {}]}, []], 3)},
        lambda r: {"const": r.choice(["only", 7, True])},
        lambda r: {"type": ["string", "null"]},
    ]
    if depth > 0:
        kind = r.random()
        if kind < 0.35:
            return object_schema(r, depth)
        if kind < 0.55:
            return array_schema(r, depth)
        if kind < 0.65:
            return {r.choice(["anyOf", "anyOf", "anyOf"]):
                    [any_schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
        if kind < 0.7:
            return {"allOf": [integer_schema(r), {"minimum": -5}]}
        if kind < 0.75:
            return {"$ref": "#/$defs/node"}
    return r.choice(simple)(r)


def document_schema(r):
    schema = any_schema(r, 3)
    if isinstance(schema, dict) and "$ref" in schema:
        schema = {"allOf": [schema]}
    schema["$defs"] = {"node": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["v"], "additionalProperties": False}}
    return schema


NONE = object()


def value_of(r, schema, root):
    """A value that probably fits; jsonschema decides."""
    if schema is True or schema == {}:
        return r.choice([1, "x", None, [1], {"z": 2}])
    if "$ref" in schema:
        return {"v": r.randint(0, 9)} if r.random() < 0.5 else {"v": 1, "next": {"v": 2}}
    if "enum" in schema:
        return r.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return value_of(r, r.choice(schema[key]), root)
    kind = schema.get("type", "null")
    kind = r.choice(kind) if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -30))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 60))
        if kind == "integer":
            return r.randint(int(min(low, high)), int(max(low, high)))
        return round(r.uniform(low, high), 3)
    if kind == "string":
        if "pattern" in schema or "format" in schema:
            return r.choice(["abc", "foo", "baar", "x", "123-4567", "A", "2024-02-29", "b", "ac",
                             "10:00:00Z", "2000-01-31T01:02:03Z", "1.2.3.4", "a@b.de",
                             "123e4567-e89b-12d3-a456-426614174000"])
        n = r.randint(schema.get("minLength", 0), schema.get("maxLength", 12))
        return "".join(r.choice(string.printable + "éß日😀") for _ in range(n))
    if kind == "boolean":
        return r.random() < 0.5
    if kind == "null":
        return None
    if kind == "array":
        first = [value_of(r, s, root) for s in schema.get("prefixItems", [])]
        rest = schema.get("items", True)
        n = r.randint(schema.get("minItems", 0), schema.get("maxItems", 4))
        while len(first) < n and rest is not False:
            first.append(value_of(r, rest, root))
        return first
    made = {}
    for name, part in schema.get("properties", {}).items():
        if name in schema.get("required", []) or r.random() < 0.6:
            made[name] = value_of(r, part, root)
    if schema.get("additionalProperties", True) is not False and r.random() < 0.4:
        made["zé1"] = 5
    return made


def texts_of(value):
    return [json.dumps(value), json.dumps(value, separators=(",", ":"), ensure_ascii=False),
            json.dumps(value, indent=2), json.dumps(value, indent=4, ensure_ascii=False),
            json.dumps(value, indent="\t")]


def has_long_number(value):
    """Numbers whose text has an exponent: not written where numbers have bounds."""
    return "e-" in json.dumps(value) or "e+" in json.dumps(value)


def cases(count, seed):
    r = random.Random(seed)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for i in range(count):
        schema = document_schema(r)
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        documents = []
        for _ in range(4):
            value = value_of(r, schema, schema)
            if validator.is_valid(value) and not has_long_number(value):
                documents += texts_of(value)
        yield {"schema": schema, "seed": i, "tokens": r.choice([15, 40, 120]),
               "documents": documents}, validator


def check(walks, tokenizer, count, seed):
    made = list(cases(count, seed))
    done = subprocess.run([walks, tokenizer], input="\n".join(json.dumps(c) for c, _ in made),
                          capture_output=True, text=True, check=True)
    bad = complete = accepted = refused = 0
    for (case, validator), line in zip(made, done.stdout.rstrip("\n").split("\n"), strict=True):
        answer = json.loads(line)
        wrong = []
        if "error" in answer:
            refused += 1
            unfit = answer["error"].endswith("no value fits the schema") and not case["documents"]
            if not unfit:
                wrong.append(answer["error"])
        else:
            if answer["possible"] and not answer["closed"]:
                wrong.append("not closed: " + answer["text"])
            if answer["closed"]:
                complete += 1
                try:
                    validator.validate(json.loads(answer["text"]))
                except (ValueError, jsonschema.ValidationError) as error:
                    wrong.append(f"{answer['text']}: {str(error).splitlines()[0]}")
            for text, good in zip(case["documents"], answer["accepted"], strict=True):
                accepted += good
                if not good:
                    wrong.append("not accepted: " + text)
        if wrong:
            bad += 1
            if bad <= 10:
                print(json.dumps(case["schema"]), *wrong[:3], sep="\n  ")
    print(f"{tokenizer}: {count} schemas, {complete} answers complete and valid, "
          f"{accepted} documents accepted, {refused} schemas that no value fits, {bad} wrong")
    return bad


@contextlib.contextmanager
def served(tessera, model, *flags):
    """A server's address and the number of its process."""
    command = [tessera, "serve", "--model", model, "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[-1], server.pid
        finally:
            server.terminate()


def post(url, body):
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=900) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def check_model(tessera, model, count, seed):
    made = list(cases(count, seed))
    wrong, complete, cut, refused = [], 0, 0, 0
    with served(tessera, model, "--slots", "8", "--max-waiting", "64", "--timeout", "900") as (url, _), \
            concurrent.futures.ThreadPoolExecutor(16) as threads:
        def answer(case):
            return post(url, {"prompt": "An example as JSON:\n", "max_tokens": case["tokens"],
                              "temperature": 1, "seed": case["seed"],
                              "response_format": format_of(case["schema"])})
        for (case, validator), said in zip(made, threads.map(answer, [c for c, _ in made])):
            schema = json.dumps(case["schema"])
            if "error" in said:
                refused += 1
                message = said["error"]["message"]
                if case["documents"] or not message.endswith("no value fits the schema"):
                    wrong.append((schema, message))
                continue
            choice = said["choices"][0]
            if choice["finish_reason"] != "stop":
                try:  # a text that the last token completes ends with "stop", too
                    validator.validate(json.loads(choice["text"]))
                    wrong.append((schema, f"{choice['text']} is complete and ends with {choice['finish_reason']}"))
                except (ValueError, jsonschema.ValidationError):
                    cut += 1
                continue
            complete += 1
            try:
                validator.validate(json.loads(choice["text"]))
            except (ValueError, jsonschema.ValidationError) as error:
                wrong.append((schema, f"{choice['text']}: {str(error).splitlines()[0]}"))
    for schema, why in wrong[:10]:
        print(schema, why, sep="\n  ")
    print(f"{os.path.basename(model)}: {count} schemas, {complete} answers complete and valid, {cut} beginnings "
          f"where the tokens did not suffice, {refused} schemas that no value fits, {len(wrong)} wrong")
    return len(wrong)


PERSON = {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
    "email": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5}},
    "required": ["name", "age"], "additionalProperties": False}
COSTS = {"persons": {"type": "array", "items": PERSON, "minItems": 8}, "any object": {"type": "object"},
         "tree": {"$defs": {"node": {"type": "object", "properties": {
             "label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
             "required": ["label", "children"], "additionalProperties": False}}, "$ref": "#/$defs/node"}}


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(tessera, model, rounds):
    """Milliseconds of processor time of a token, with and without each schema, in turns."""
    with served(tessera, model, "--threads", "1") as (url, pid):
        def milliseconds(temperature, seed, schema):
            body = {"prompt": "Some examples as JSON:\n", "max_tokens": 200, "temperature": temperature,
                    "seed": seed}
            if schema is None:
                body["min_tokens"] = 200
            else:
                body["response_format"] = format_of(schema)
            before = processor_seconds(pid)
            tokens = post(url, body)["usage"]["completion_tokens"]
            return 1000 * (processor_seconds(pid) - before), tokens
        milliseconds(0, 0, None)
        for (name, schema), temperature in itertools.product(COSTS.items(), (0, 0.8)):
            first, tokens = milliseconds(temperature, 0, schema)
            runs = [(milliseconds(temperature, i, schema), milliseconds(temperature, i, None))
                    for i in range(1, rounds + 1)]
            with_schema = sum(a[0] for a, _ in runs) / sum(a[1] for a, _ in runs)
            without = sum(b[0] for _, b in runs) / sum(b[1] for _, b in runs)
            each = statistics.median(a[0] / a[1] / (b[0] / b[1]) for a, b in runs)
            print(f"{name}, temperature {temperature}: {with_schema:.2f} ms a token with the schema, {without:.2f} without: "
                  f"{100 * (with_schema / without - 1):+.1f} % (median of {rounds}: {100 * (each - 1):+.1f} %); "
                  f"first request {first / tokens:.2f} ms a token of {tokens}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--walks")
    parser.add_argument("--tokenizer", action="append", default=[])
    parser.add_argument("--tessera")
    parser.add_argument("--model")
    parser.add_argument("--cost", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.cost:
        return cost(args.tessera, args.model, args.cost)
    wrong = sum(check(args.walks, t, args.schemas, args.seed) for t in args.tokenizer)
    if args.model:
        wrong += check_model(args.tessera, args.model, args.schemas, args.seed)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
