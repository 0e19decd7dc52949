# SPDX-License-Identifier: Apache-2.0
"""GLM and ChatGLM-6B against plain implementations in this file: goldens for the unit test, and a
check of the program. (transformers has neither model; they are written here from the papers and the
Hub's configurations, with whole masks, no cache, and none of the program's code.)

    pip install torch safetensors
    python tests/parity/glm_model.py write
        writes tests/parity/goldens/glm/, which glm_golden_test.cc reads
    python tests/parity/glm_model.py check [--tessera BINARY] [--resave BINARY]
        makes random models of unusual shapes, runs them with the program and with the reference in
        float64, and prints for every case the worst relative error of outputs and of gradients;
        compares padded rows with plain ones, generated tokens, and files loaded and saved
"""
import json
import math
import os
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/glm"

GLM_CASES = {
    "glm": dict(vocab_size=101, hidden_size=60, num_layers=3, num_attention_heads=5,
                max_sequence_length=37, sop_token_id=90, eop_token_id=91, mask_token_id=92,
                smask_token_id=93, gmask_token_id=94),
    "glm one coordinate": dict(vocab_size=67, hidden_size=39, num_layers=2, num_attention_heads=3,
                               max_sequence_length=29, block_position_encoding=False,
                               layernorm_epsilon=1e-3, attention_scale=4.0, sop_token_id=60,
                               eop_token_id=61, mask_token_id=62),
}
CHATGLM_CASES = {
    "chatglm": dict(vocab_size=97, hidden_size=72, num_layers=3, num_attention_heads=6,
                    inner_hidden_size=77, max_sequence_length=41, bos_token_id=90, eos_token_id=91,
                    mask_token_id=92, gmask_token_id=93, pad_token_id=3),
    "chatglm tied": dict(vocab_size=61, hidden_size=40, num_layers=2, num_attention_heads=2,
                         inner_hidden_size=31, max_sequence_length=33, layernorm_epsilon=1e-3,
                         tie_word_embeddings=True, bos_token_id=50, eos_token_id=51,
                         mask_token_id=52, gmask_token_id=53, pad_token_id=3),
}


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)

    def attend(self, q, k, v, visible):
        """[B, H, T, D] each; visible [B, 1, T, T]."""
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        out = scores.masked_fill(~visible, -math.inf).softmax(-1) @ v
        return self.dense(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(width, inner)
        self.dense_4h_to_h = nn.Linear(inner, width)

    def forward(self, x):
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, inner, eps):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width)
        self.post_attention_layernorm = nn.LayerNorm(width, eps=eps)
        self.mlp = FeedForward(width, inner)


class Reference(nn.Module):
    """What both models are built of; names as in the Hub's files."""

    def __init__(self, fields, inner):
        super().__init__()
        self.fields = fields
        self.width, self.heads = fields["hidden_size"], fields["num_attention_heads"]
        eps = fields.get("layernorm_epsilon", 1e-5)
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(
            Layer(self.width, inner, eps) for _ in range(fields["num_layers"]))
        self.transformer.final_layernorm = nn.LayerNorm(self.width, eps=eps)

    def save_pretrained(self, folder, prefix="", extra=None):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({"model_type": self.model_type, "architectures": [self.architecture],
                       **self.fields}, file)
        tensors = {prefix + n: p.detach().float().clone() for n, p in self.named_parameters()}
        save_file({**tensors, **(extra or {})}, os.path.join(folder, "model.safetensors"),
                  {"format": "pt"})


class Glm(Reference):
    model_type, architecture = "glm", "GLMForConditionalGeneration"

    def __init__(self, fields):
        super().__init__(fields, 4 * fields["hidden_size"])
        self.word_embeddings = nn.Embedding(fields["vocab_size"], self.width)
        self.blocks = fields.get("block_position_encoding", True)
        rows = fields["max_sequence_length"] + self.blocks
        self.transformer.position_embeddings = nn.Embedding(rows, self.width)
        if self.blocks:
            self.transformer.block_position_embeddings = nn.Embedding(rows, self.width)

    @staticmethod
    def visible(mask, rows, tokens):
        """[B, 1, T, T] of each of the forms of a mask."""
        causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None, None]
        if mask is None:
            return causal.expand(rows, 1, tokens, tokens)
        if mask.dim() == 1:
            return causal | (torch.arange(tokens) < mask[:, None])[:, None, None]
        if mask.dim() == 2:
            return mask.bool()[:, None, None].expand(rows, 1, tokens, tokens)
        return mask.bool().expand(rows, 1, tokens, tokens)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        rows, tokens = input_ids.shape
        if position_ids is None:
            position_ids = torch.arange(tokens).expand(rows, tokens)
        if position_ids.dim() == 2:
            position_ids = torch.stack([position_ids, torch.zeros_like(position_ids)], 1)
        t = self.transformer
        x = self.word_embeddings(input_ids) + t.position_embeddings(position_ids[:, 0])
        if self.blocks:
            x = x + t.block_position_embeddings(position_ids[:, 1])
        visible = self.visible(attention_mask, rows, tokens)
        self.states = [x]  # as the original's `mems`: what layers give, without the final norm
        for layer in t.layers:
            n = layer.input_layernorm(x)
            q, k, v = (p.unflatten(2, (self.heads, -1)).transpose(1, 2)
                       for p in layer.attention.query_key_value(n).chunk(3, -1))
            x = x + layer.attention.attend(q, k, v, visible)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            self.states.append(x)
        h = t.final_layernorm(x)
        return h @ self.word_embeddings.weight.T, h

    def outputs(self, inputs):
        logits, h = self(**{n: t for n, t in inputs.items()
                            if n in ("input_ids", "attention_mask", "position_ids")})
        labels = inputs["labels"]
        if "choice_ids" not in inputs:
            return {"logits": logits, "last_hidden_state": h,
                    "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}
        scores = []
        for row, ids, places in zip(logits.log_softmax(-1), inputs["choice_ids"],
                                    inputs["choice_indices"]):
            scores.append(torch.stack([row[p[c >= 0], c[c >= 0]].sum() for c, p in zip(ids, places)]))
        scores = torch.stack(scores)
        return {"logits": scores, "lm_logits": logits, "last_hidden_state": h,
                "loss": F.cross_entropy(scores, labels)}

    def next_logits(self, prompt, new):
        """After a text: what fills the blank has the blank's position and counts within it."""
        f = self.fields
        masks = [f[n] for n in ("mask_token_id", "smask_token_id", "gmask_token_id") if n in f]
        blank = min(i for i, t in enumerate(prompt) if t in masks)
        context = prompt.index(f["sop_token_id"])
        filled = len(prompt) - context + len(new)
        positions = [list(range(context)) + [blank] * filled,
                     [0] * context + list(range(1, filled + 1))]
        positions = torch.tensor([positions if self.blocks else positions[0]])
        return self(torch.tensor([prompt + new]), torch.tensor([context]), positions)[0][0, -1]

    def ends(self):
        return [self.fields["eop_token_id"]]


class ChatGlm(Reference):
    model_type, architecture = "chatglm", "ChatGLMForConditionalGeneration"

    def __init__(self, fields):
        super().__init__(fields, fields["inner_hidden_size"])
        self.transformer.word_embeddings = nn.Embedding(fields["vocab_size"], self.width)
        self.lm_head = nn.Linear(self.width, fields["vocab_size"], bias=False)
        if fields.get("tie_word_embeddings"):
            self.lm_head.weight = self.transformer.word_embeddings.weight

    def mask_and_positions(self, row):
        """The original's for one text: True where a key is hidden."""
        f, tokens = self.fields, len(row)
        start = row.index(f["bos_token_id"])
        blank = row.index(f["gmask_token_id"] if f["gmask_token_id"] in row else f["mask_token_id"])
        mask = torch.ones(tokens, tokens).tril()
        mask[:, :start] = 1
        position = torch.arange(tokens)
        position[start:] = blank
        block = torch.cat([torch.zeros(start, dtype=torch.long),
                           torch.arange(tokens - start) + 1])
        return mask < 0.5, torch.stack([position, block])

    @staticmethod
    def rotate(x, positions):
        """Feature i of [B, H, T, D] turns with i + D/2 by the token's position."""
        half = x.shape[-1] // 2
        angle = positions[:, None, :, None] * 10000.0 ** (-torch.arange(half).double() / half)
        cos, sin = angle.cos().to(x), angle.sin().to(x)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def hidden(self, ids, hidden_keys, positions):
        """[layers + 1, B, T, C]: the last is behind the final norm, as the original's."""
        t = self.transformer
        x = t.word_embeddings(ids)
        alpha = math.sqrt(2 * len(t.layers))
        visible = ~hidden_keys.bool()
        states = []

        def turned(y):
            a, b = y.chunk(2, -1)
            return torch.cat([self.rotate(a, positions[:, 0]), self.rotate(b, positions[:, 1])], -1)

        for layer in t.layers:
            states.append(x)
            n = layer.input_layernorm(x)
            mixed = layer.attention.query_key_value(n).unflatten(2, (self.heads, -1))
            q, k, v = (p.transpose(1, 2) for p in mixed.chunk(3, -1))
            x = alpha * n + layer.attention.attend(turned(q), turned(k), v, visible)
            n = layer.post_attention_layernorm(x)
            x = alpha * n + layer.mlp(n)
        return torch.stack([*states, t.final_layernorm(x)])

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        """Rows one by one, without their padding, unless the mask is [B, 1, T, T]."""
        if attention_mask is not None and attention_mask.dim() == 4:
            self.states = self.hidden(input_ids, attention_mask, position_ids)
            return self.lm_head(self.states[-1]), self.states[-1]
        dtype = self.lm_head.weight.dtype
        states = torch.zeros(*input_ids.shape, len(self.transformer.layers) + 1, self.width, dtype=dtype)
        for b, row in enumerate(input_ids):
            kept = (torch.ones_like(row) if attention_mask is None else attention_mask[b]).bool()
            mask, positions = self.mask_and_positions(row[kept].tolist())
            if position_ids is not None:
                positions = position_ids[b][:, kept]
            one = self.hidden(row[kept][None], mask[None, None], positions[None])[:, 0]
            states = states.index_put((torch.tensor(b), kept.nonzero()[:, 0]), one.transpose(0, 1))
        self.states = states.movedim(2, 0)
        return self.lm_head(self.states[-1]), self.states[-1]

    def outputs(self, inputs):
        logits, h = self(**{n: t for n, t in inputs.items() if n != "labels"})
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten())
        return {"logits": logits, "last_hidden_state": h, "loss": loss}

    def next_logits(self, prompt, new):
        return self(torch.tensor([prompt + new]))[0][0, -1]

    def ends(self):
        return [self.fields["eos_token_id"]]


def make_model(cls, fields, seed):
    return parity.randomise(cls(fields), seed)


def glm_inputs(model, kind, seed, rows=3, tokens=17):
    random = torch.Generator().manual_seed(seed)
    f = model.fields
    ids = torch.randint(f["vocab_size"], (rows, tokens), generator=random)
    labels = torch.randint(f["vocab_size"], (rows, tokens), generator=random)
    labels = labels.masked_fill(torch.rand(labels.shape, generator=random) < 0.4, -100)
    inputs = {"input_ids": ids, "labels": labels}
    limit = f["max_sequence_length"] + model.blocks
    shape = (rows, 2, tokens) if model.blocks else (rows, tokens)
    if kind != "plain":
        inputs["position_ids"] = torch.randint(limit, shape, generator=random)
    if kind == "one coordinate":
        inputs["position_ids"] = torch.randint(limit, (rows, tokens), generator=random)
    if kind in ("prefix", "one coordinate"):
        inputs["attention_mask"] = torch.tensor([tokens, 0, 5][:rows])
    if kind in ("pairs", "cloze"):
        mask = torch.rand((rows, 1, tokens, tokens), generator=random) < 0.5
        inputs["attention_mask"] = (mask | torch.eye(tokens).bool()).long()
    if kind == "keys":
        mask = torch.rand((rows, tokens), generator=random) < 0.6
        mask[:, 3] = True
        inputs["attention_mask"] = mask.long()
    if kind == "cloze":
        choices = torch.randint(f["vocab_size"], (rows, 4, 3), generator=random)
        choices[0, 1, 2] = choices[2, 0, 1] = choices[2, 0, 2] = -100
        inputs["choice_ids"] = choices
        inputs["choice_indices"] = torch.randint(tokens, choices.shape, generator=random)
        inputs["labels"] = torch.randint(4, (rows,), generator=random)
    return inputs


def chatglm_inputs(model, kind, seed, rows=3, tokens=17):
    random = torch.Generator().manual_seed(seed)
    f = model.fields
    special = f["bos_token_id"]
    ids = torch.randint(special, (rows, tokens), generator=random)
    lengths = torch.randint(8, tokens, (rows,), generator=random)
    lengths[0] = tokens
    keep = torch.ones((rows, tokens), dtype=torch.bool)
    column = torch.arange(tokens)
    for b in range(rows):
        begin = 0
        if kind == "left":
            begin = tokens - lengths[b].item()
            keep[b] = column >= begin
        if kind == "right":
            keep[b] = column < lengths[b]
        start = begin + 3 + b
        ids[b, start - 1 - b % 2] = f["mask_token_id"] if b == 1 else f["gmask_token_id"]
        ids[b, start] = special
    labels = torch.where((torch.rand(ids.shape, generator=random) < 0.3) | ~keep, -100, ids)
    labels[:, :6] = -100  # what follows padding is no target
    if kind == "left":
        for b in range(rows):
            labels[b, : tokens - lengths[b] + 1] = -100
    inputs = {"input_ids": ids, "labels": labels}
    if kind in ("left", "right"):
        inputs["attention_mask"] = keep.long()
    if kind in ("pairs", "positions"):
        inputs["position_ids"] = torch.randint(f["max_sequence_length"], (rows, 2, tokens),
                                               generator=random)
    if kind == "pairs":
        mask = torch.rand((rows, 1, tokens, tokens), generator=random) < 0.5
        inputs["attention_mask"] = (mask & ~torch.eye(tokens).bool()).long()  # 1 hides
    return inputs


def make_inputs(model, kind, seed, **sizes):
    make = glm_inputs if isinstance(model, Glm) else chatglm_inputs
    return make(model, kind, seed, **sizes)


def kinds_of(model):
    if isinstance(model, ChatGlm):
        return ("plain", "left", "right", "positions", "pairs")
    return ("plain", "prefix", "pairs", "keys", "one coordinate", "cloze")


def reference(model, inputs, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too) and gradients in float64, by the
    names of the program's files."""
    model = model.double()
    outputs = model.outputs(inputs)
    outputs.update(parity.numbered(model.states) if hidden else {})
    gradients = parity.gradients_of(model, outputs["loss"])
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def check_forward(report, program, folder, name, model):
    for kind in kinds_of(model):
        inputs = make_inputs(model, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        rows = None
        if kind in ("left", "right"):
            rows = inputs["attention_mask"].bool()
        for dtype, tolerance in (("float32", parity.TOLERANCE), ("float64", 1e-12)):
            got, got_gradients = parity.forward(program, folder, inputs, dtype,
                                                flags=parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", parity.compare(got, outputs, rows), tolerance)
            report.error(f"{name} {kind} {dtype} gradients",
                         parity.compare(got_gradients, gradients), tolerance)


def check_padding(report, program, folder, name, model):
    """A row padded on either side gives what it gives alone."""
    chat = isinstance(model, ChatGlm)
    alone = make_inputs(model, "plain", seed=8, rows=1, tokens=13)
    if not chat:
        alone["attention_mask"] = torch.ones(1, 13, dtype=torch.long)
        alone["position_ids"] = torch.arange(13)[None]
    want = parity.forward(program, folder, alone, gradients=False)[0]
    for left, right in ((4, 0), (0, 3), (2, 2)):
        inputs = {n: F.pad(t, (left, right), value=-100 if n == "labels" else 7)
                  for n, t in alone.items()}
        inputs["attention_mask"] = F.pad(torch.ones(1, 13, dtype=torch.long), (left, right))
        got = parity.forward(program, folder, inputs, gradients=False)[0]
        same = all(torch.allclose(got[n][:, left:left + 13] if t.dim() > 1 else got[n], t,
                                  rtol=1e-6, atol=1e-6) for n, t in want.items())
        report(f"{name} padded {left} + {right} as alone", same)


def beam_search(model, prompt, new, beams):
    """The likeliest finished text of a beam search without early stop, scores divided by length."""
    live, finished = [(0.0, [])], []
    for length in range(1, new + 1):
        candidates = []
        for score, text in live:
            log_p = model.next_logits(prompt, text).log_softmax(-1)
            candidates += [(score + log_p[i].item(), text + [i]) for i in range(len(log_p))]
        candidates.sort(key=lambda c: -c[0])
        live = []
        for rank, (score, text) in enumerate(candidates[: max(2, 1 + len(model.ends())) * beams]):
            if text[-1] in model.ends() or length == new:
                if rank < beams:
                    finished.append((score / length, text))
            elif len(live) < beams:
                live.append((score, text))
        finished = sorted(finished, key=lambda c: -c[0])[:beams]
        if not live or (len(finished) == beams and live[0][0] / length <= finished[-1][0]):
            break
    return finished[0][1]


def check_generation(report, program, folder, name, model):
    model = model.double()
    f = model.fields
    if isinstance(model, Glm):
        blanks = [f[n] for n in ("mask_token_id", "smask_token_id", "gmask_token_id") if n in f]
        prompts = [[5, 9, blanks[-1]], [blanks[0], 4, 8, 15, 16, 23], [7, 7, blanks[len(blanks) // 2], 3]]
        tail = [f["sop_token_id"]]
    else:
        prompts = [[5, 9, 11], [4, 8, 15, 16, 23], [3, 7, f["mask_token_id"], 3]]
        tail = [f["bos_token_id"]]
    for what, flags, beams in (("greedy", [], 1), ("3 beams", ["--num-beams", "3"], 3)):
        same = 0
        for prompt in prompts:
            full = list(prompt)
            if isinstance(model, ChatGlm) and f["mask_token_id"] not in full:
                full.append(f["gmask_token_id"])
            full += tail
            with torch.no_grad():
                if beams > 1:
                    new = beam_search(model, full, 10, beams)
                else:
                    new = []
                    while len(new) < 10 and (not new or new[-1] not in model.ends()):
                        new.append(model.next_logits(full, new).argmax().item())
            for given in (prompt, full):  # the program adds what is missing
                got = parity.run(program, "generate", "--model", folder, "--ids",
                                 ",".join(map(str, given)), "--max-new-tokens", "10", *flags).strip()
                same += got == ",".join(map(str, full + new))
                if got != ",".join(map(str, full + new)):
                    print("  reference", full + new, "\n  program  ", got)
        report(f"{name} generate {what}", same == 2 * len(prompts), f"{same} of {2 * len(prompts)}")


def check_files(report, program, resave, folder, name, model):
    """What the program saves is what it loaded; folders with a prefix and with buffers load."""
    want = load_file(os.path.join(folder, "model.safetensors"))
    for shards, limit in (("one file", 10**9), ("shards", 20000)):
        with tempfile.TemporaryDirectory() as work:
            saved = os.path.join(work, "saved")
            parity.run(resave, folder, saved, limit)
            got = {}
            for file in sorted(os.listdir(saved)):
                if file.endswith(".safetensors"):
                    got.update(load_file(os.path.join(saved, file)))
            same = set(got) == set(want) and all(torch.equal(got[n], want[n]) for n in want)
            report(f"{name} saved by the program, {shards}", same,
                   f"{len(os.listdir(saved))} files {sorted(set(got) ^ set(want))[:3]}")
    inputs = make_inputs(model, "plain", seed=13)
    outputs, _ = reference(model, inputs)
    with tempfile.TemporaryDirectory() as old:
        if isinstance(model, Glm):
            model.save_pretrained(old, prefix="glm.")
        else:
            model.save_pretrained(old, extra={
                f"transformer.layers.{i}.attention.rotary_emb.inv_freq": torch.ones(3)
                for i in range(model.fields["num_layers"])})
        got = parity.forward(program, old, inputs, gradients=False)[0]
        report.error(f"{name} the Hub's names outputs", parity.compare(got, outputs), parity.TOLERANCE)


def check_refusals(report, program, folder, model):
    chat = isinstance(model, ChatGlm)
    f = model.fields
    inputs = make_inputs(model, "plain", seed=3)
    rows, tokens = inputs["input_ids"].shape
    long = {"input_ids": torch.full((1, f["max_sequence_length"] + 2), 5)}
    cases = [
        ("a text too long", long, "positions"),
        ("positions of a wrong shape",
         dict(inputs, position_ids=torch.zeros(rows, 3, tokens, dtype=torch.long)), "position_ids"),
        ("a position too far",
         dict(inputs, position_ids=torch.full((rows, 2, tokens), 500)), "position_ids"),
        ("a mask of a wrong shape",
         dict(inputs, attention_mask=torch.ones(rows, tokens, tokens, dtype=torch.long)),
         "attention_mask"),
        ("a label too large", dict(inputs, labels=inputs["labels"] + 5000), "vocabulary"),
    ]
    if chat:
        cases.append(("a text without <sop>", {"input_ids": torch.full((2, 9), 5)}, "bos_token_id"))
    else:
        cases.append(("candidates without places",
                      dict(inputs, choice_ids=torch.zeros(rows, 2, 2, dtype=torch.long)),
                      "choice_indices"))
        none = torch.tensor([[[5, -100], [-100, -100]]] * rows)
        cases.append(("a label without candidate",
                      dict(inputs, choice_ids=none, choice_indices=torch.ones_like(none),
                           labels=torch.ones(rows, dtype=torch.long)), "no candidate 1"))
    configs = [("an unknown architecture", {"architectures": ["GLMForWhatever"]}, "GLMForWhatever")]
    if chat:
        configs += [("prefix tuning", {"pre_seq_len": 128}, "pre_seq_len"),
                    ("quantisation", {"quantization_bit": 4}, "quantization_bit")]
    else:
        configs += [("relative positions", {"relative_encoding": True}, "relative_encoding"),
                    ("learnt prompts", {"spell_length": 9}, "spell_length")]
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "in.safetensors")

        def message(folder):
            return parity.failure(program, "forward", "--model", folder, "--inputs", path,
                                  "--outputs", os.path.join(work, "out"))

        for what, changed, part in cases:
            save_file({n: t.contiguous() for n, t in changed.items()}, path)
            text = message(folder)
            report(f"{model.model_type} refused: {what}", part in text, text.replace(work, ""))
        save_file({"input_ids": inputs["input_ids"]}, path)
        for what, changed, part in configs:
            other = os.path.join(work, "other")
            model.save_pretrained(other)
            config = json.load(open(os.path.join(other, "config.json")))
            json.dump({**config, **changed}, open(os.path.join(other, "config.json"), "w"))
            text = message(other)
            report(f"{model.model_type} refused: {what}", part in text, text.replace(work, ""))


def check(args):
    report = parity.Report()
    cases = [(n, Glm, f) for n, f in GLM_CASES.items()]
    cases += [(n, ChatGlm, f) for n, f in CHATGLM_CASES.items()]
    for seed, (name, cls, fields) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(cls, fields, seed)
            model.save_pretrained(folder)
            check_forward(report, args.tessera, folder, name, model)
            check_padding(report, args.tessera, folder, name, model)
            check_generation(report, args.tessera, folder, name, model)
            check_files(report, args.tessera, args.resave, folder, name, model)
            if name in ("glm", "chatglm"):
                check_refusals(report, args.tessera, folder, model)
    return report.finish()


def write(_):
    cases = {
        "glm": (Glm, dict(vocab_size=37, hidden_size=15, num_layers=2, num_attention_heads=3,
                          max_sequence_length=19, sop_token_id=30, eop_token_id=31,
                          mask_token_id=32)),
        "chatglm": (ChatGlm, dict(vocab_size=37, hidden_size=24, num_layers=2,
                                  num_attention_heads=3, inner_hidden_size=29,
                                  max_sequence_length=19, bos_token_id=30, eos_token_id=31,
                                  mask_token_id=32, gmask_token_id=33, pad_token_id=3)),
    }
    recorded = {"glm": ("plain", "prefix", "pairs", "cloze", "hidden"),
                "chatglm": ("plain", "left", "pairs", "hidden")}
    with_hidden = {"glm": "cloze", "chatglm": "left"}
    with_gradients = ("prefix", "cloze", "left")
    for seed, (name, (cls, fields)) in enumerate(cases.items()):
        folder = GOLDENS / name
        model = make_model(cls, fields, 100 + seed)
        model.save_pretrained(folder)
        for kind in recorded[name]:
            hidden = kind == "hidden"
            inputs = make_inputs(model, with_hidden[name] if hidden else kind, seed=20 + seed, tokens=11)
            outputs, gradients = reference(model, inputs, hidden)
            tensors = {f"in.{n}": t for n, t in inputs.items()}
            tensors.update({f"out.{n}": t for n, t in outputs.items()})
            if kind in with_gradients:
                tensors.update({f"grad.{n}": t for n, t in gradients.items()})
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{kind}.safetensors")
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
