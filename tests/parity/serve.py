#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tessera serve` with the clients that people have: openai-python, lm-evaluation-harness, ChatGLM's request.

  bazel build //tools:tessera
  python3 tests/parity/serve.py FOLDER --text FILE [--docs 24]

FOLDER is a causal model with its tokenizer, FILE has lines of text. Log-probabilities of prompts are those of
transformers on the same folder within 1e-5; lm-evaluation-harness, unmodified, gives the same log-likelihoods within 1e-5 and
the same accuracy through `local-completions` as through transformers in float64 (sums over an ending's tokens in float32 are
farther from these than ours), for a task from a local file: which of four endings a line has. Needs openai, lm_eval[api], torch and transformers (development only).
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile

FAILED = []


def check(what, good, detail=""):
    print(("ok      " if good else "FAILED  ") + what + (f" ({detail})" if detail != "" else ""), flush=True)
    if not good:
        FAILED.append(what)


def openai_checks(url, folder):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    name = client.models.list().data[0].id
    asked = dict(model=name, prompt="The weather", max_tokens=12, temperature=0, seed=1)
    answer = client.completions.create(**asked, logprobs=3)
    check("completions", answer.choices[0].finish_reason in ("length", "stop") and answer.usage.completion_tokens <= 12)
    check("logprobs", len(answer.choices[0].logprobs.token_logprobs) == answer.usage.completion_tokens)
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True))
    check("streamed completions", streamed == answer.choices[0].text)
    several = client.completions.create(model=name, prompt=["One", "Two"], n=2, max_tokens=4, temperature=1, seed=3)
    check("n choices of each prompt", [c.index for c in several.choices] == [0, 1, 2, 3])
    vectors = client.embeddings.create(model=name, input=["a text", "another"])
    plain = client.embeddings.create(model=name, input="a text", encoding_format="float").data[0].embedding
    check("embeddings", len(vectors.data) == 2 and max(abs(a - b) for a, b in zip(vectors.data[0].embedding, plain)) == 0)
    for kind, call in ((openai.NotFoundError, dict(asked, model="nobody")), (openai.BadRequestError, dict(asked, temperature=-3))):
        try:
            client.completions.create(**call)
            check(kind.__name__, False)
        except kind as error:
            check(kind.__name__, error.body["param"] in ("model", "temperature"))
    has_template = os.path.exists(os.path.join(folder, "chat_template.jinja"))
    if not has_template:
        return
    messages = [{"role": "user", "content": "Hello"}]
    chat = client.chat.completions.create(model=name, messages=messages, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
    check("conversations", chat.choices[0].message.role == "assistant" and len(chat.choices[0].logprobs.content) > 0)
    chunks = list(client.chat.completions.create(model=name, messages=messages, max_tokens=8, temperature=0, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("streamed conversations", text == chat.choices[0].message.content and chunks[-1].usage.total_tokens > 0)


def chatglm_check(url):
    import requests
    answer = requests.post(url, headers={"Content-Type": "application/json"},
                           data=json.dumps({"prompt": "Hello", "history": [["Hi", "Ho"]], "max_length": 40})).json()
    check("ChatGLM's request", answer["status"] == 200 and answer["history"][:1] == [["Hi", "Ho"]]
          and answer["history"][1] == ["Hello", answer["response"]] and len(answer["time"]) == 19)


def logprob_check(url, folder, lines):
    import requests
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    rows = [ids for ids in (tokenizer(line).input_ids[:64] for line in lines) if len(ids) > 1]
    answer = requests.post(url + "/v1/completions", json={"prompt": rows, "echo": True, "logprobs": 1, "max_tokens": 0}).json()
    worst = 0.0
    for ids, choice in zip(rows, answer["choices"]):
        with torch.inference_mode():
            scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        wanted = [scores[t - 1, ids[t]].item() for t in range(1, len(ids))]
        worst = max(worst, max(abs(a - b) for a, b in zip(choice["logprobs"]["token_logprobs"][1:], wanted)))
    check("log-probabilities of prompts beside transformers", worst < 1e-5, f"{worst:.1e} of {len(rows)} rows")


def harness_check(url, folder, lines, scratch):
    """The same task through the server and through transformers, both by the harness."""
    draw, docs = random.Random(3), []
    ends = [line.split() for line in lines]
    for words in ends:
        right, middle = draw.randrange(4), len(words) // 2
        choices = [" ".join(other[len(other) // 2:]) for other in draw.sample(ends, 4)]
        choices[right] = " ".join(words[middle:])
        docs.append({"query": " ".join(words[:middle]), "choices": choices, "gold": right})
    with open(f"{scratch}/docs.jsonl", "w") as file:
        file.writelines(json.dumps(doc) + "\n" for doc in docs)
    with open(f"{scratch}/task.yaml", "w") as file:
        file.write(f"task: endings\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {scratch}/docs.jsonl\ntest_split: test\n"
                   "output_type: multiple_choice\ndoc_to_text: '{{query}}'\ndoc_to_target: gold\ndoc_to_choice: '{{choices}}'\n"
                   "metric_list:\n  - metric: acc\n  - metric: acc_norm\n")
    results = {}
    for kind, arguments in (("server", ["local-completions", f"model=served,base_url={url}/v1/completions,tokenizer={folder},"
                                        "tokenized_requests=True,num_concurrent=2,max_length=256"]),
                            ("transformers", ["hf", f"pretrained={folder},dtype=float64,max_length=256"])):
        out = f"{scratch}/{kind}"
        subprocess.run([sys.executable, "-m", "lm_eval", "--model", arguments[0], "--model_args", arguments[1], "--tasks", "endings",
                        "--include_path", scratch, "--output_path", out, "--log_samples", "--device", "cpu", "--batch_size", "8"],
                       check=True, stdout=subprocess.DEVNULL, stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL)
        found = [os.path.join(root, name) for root, _, names in os.walk(out) for name in names]
        with open(next(path for path in found if "samples_" in path)) as file:
            samples = sorted((json.loads(line) for line in file), key=lambda sample: sample["doc_id"])
        with open(next(path for path in found if "results_" in path)) as file:
            results[kind] = json.load(file)["results"]["endings"], samples
    ours, theirs = results["server"], results["transformers"]
    apart = [abs(float(a[0][0]) - float(b[0][0])) for one, other in zip(ours[1], theirs[1]) for a, b in zip(one["resps"], other["resps"])]
    greedy = [str(a[0][1]) == str(b[0][1]) for one, other in zip(ours[1], theirs[1]) for a, b in zip(one["resps"], other["resps"])]
    check("log-likelihoods of lm-evaluation-harness", max(apart) < 1e-5, f"{max(apart):.1e} of {len(apart)}")
    check("is_greedy of lm-evaluation-harness", all(greedy))
    for metric in ("acc,none", "acc_norm,none"):
        check(f"{metric} of lm-evaluation-harness", ours[0][metric] == theirs[0][metric], ours[0][metric])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--docs", type=int, default=24)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    options = parser.parse_args()
    with open(options.text) as file:
        lines = [line.strip() for line in file if 8 <= len(line.split()) <= 30][:options.docs]
    server = subprocess.Popen([options.tessera, "serve", "--model", options.model, "--port", "0", "--name", "served"],
                              stdout=subprocess.PIPE, text=True)
    url = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", server.stdout.readline())[1]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            openai_checks(url, options.model)
            chatglm_check(url)
            logprob_check(url, options.model, lines)
            harness_check(url, options.model, lines, scratch)
    finally:
        server.send_signal(signal.SIGTERM)
        check("SIGTERM", server.wait(20) == 0)
    print(f"{len(FAILED)} failed")
    return len(FAILED) > 0


if __name__ == "__main__":
    sys.exit(main())
