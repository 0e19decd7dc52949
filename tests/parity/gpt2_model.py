# SPDX-License-Identifier: Apache-2.0
"""GPT-2 against transformers: goldens for the unit test, and a check of the program.

    pip install torch 'transformers<5' safetensors
    python tests/parity/gpt2_model.py write
        writes tests/parity/goldens/gpt2/: two small random models with inputs, and the outputs and
        gradients of a float64 reference; and the losses of 20 AdamW steps. gpt2_golden_test.cc
        reads them.
    python tests/parity/gpt2_model.py check [--tessera BINARY] [--resave BINARY]
        makes random models of unusual shapes, runs them with the program and with transformers in
        float64, and prints for every case the worst relative error ||a-b||/||b|| of outputs and
        gradients; compares greedy and beam-search generation token by token; and loads what either
        side saved with the other.
"""
import os
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

import parity
from parity import Report, forward, run

GOLDENS = pathlib.Path(__file__).parent / "goldens/gpt2"

COMMON = dict(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, bos_token_id=1, eos_token_id=2)
MODELS = {
    "plain": dict(vocab_size=101, n_positions=37, n_embd=60, n_layer=3, n_head=5, n_inner=77),
    "untied": dict(vocab_size=211, n_positions=29, n_embd=84, n_layer=4, n_head=7, n_inner=None,
                   activation_function="silu", scale_attn_by_inverse_layer_idx=True,
                   tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    "unscaled": dict(vocab_size=53, n_positions=41, n_embd=39, n_layer=2, n_head=3, n_inner=31,
                     activation_function="relu", scale_attn_weights=False),
    "exact": dict(vocab_size=67, n_positions=33, n_embd=64, n_layer=2, n_head=1, n_inner=130,
                  activation_function="gelu"),
}
GOLDEN_MODELS = {
    "tied": dict(vocab_size=67, n_positions=19, n_embd=25, n_layer=2, n_head=5, n_inner=37),
    "untied": dict(vocab_size=41, n_positions=17, n_embd=21, n_layer=2, n_head=3, n_inner=None,
                   activation_function="silu", scale_attn_by_inverse_layer_idx=True,
                   tie_word_embeddings=False, layer_norm_epsilon=1e-3),
}


def make_model(fields, seed):
    """A model whose parameters, norms and biases too, are random float32 numbers."""
    config = GPT2Config(**{**COMMON, **fields})
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            centre = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            std = 0.3 / (1 + 0.15 * len(p.shape)) if centre == 0 else 0.2
            p.copy_(centre + std * torch.randn(p.shape, generator=random))
    return model.eval()


def make_inputs(config, kind, seed, rows=3, tokens=None):
    """Inputs of one kind of padding. Labels of padding, and a few others, are -100."""
    random = torch.Generator().manual_seed(seed)
    tokens = tokens or config.n_positions - 4
    ids = torch.randint(config.vocab_size, (rows, tokens), generator=random)
    labels = torch.where(torch.rand(ids.shape, generator=random) < 0.2, -100, ids)
    if kind == "plain":
        return {"input_ids": ids, "labels": labels}
    lengths = torch.randint(2, tokens + 1, (rows, 1), generator=random)
    lengths[0] = tokens
    column = torch.arange(tokens)[None, :]
    mask = column < lengths if kind == "right" else column >= tokens - lengths
    labels = labels.masked_fill(~mask, -100)
    if kind != "right":
        # The last padding token sees no key at all: what it predicts is not compared.
        for row in range(1, rows):
            labels[row, tokens - lengths[row]] = -100
    inputs = {"input_ids": ids, "labels": labels, "attention_mask": mask.long()}
    if kind == "left_positions":
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    if kind == "positions":
        inputs["position_ids"] = torch.randint(config.n_positions, ids.shape, generator=random)
    return inputs


def shifted_loss(logits, labels):
    """Transformers' loss, which it computes in float32 whatever the model's dtype."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def reference(model, inputs, with_gradients=True, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too) and gradients in float64, by the
    names of the program's files."""
    model = model.double()
    model.zero_grad()
    out = model(**{n: t for n, t in inputs.items() if n != "labels"}, output_hidden_states=True)
    loss = shifted_loss(out.logits, inputs["labels"])
    outputs = {"logits": out.logits, "last_hidden_state": out.hidden_states[-1], "loss": loss}
    if hidden:
        outputs.update({f"hidden_states.{i}": t for i, t in enumerate(out.hidden_states)})
    outputs = {name: t.detach().clone() for name, t in outputs.items()}
    if not with_gradients:
        return outputs, {}
    loss.backward()
    return outputs, {name: p.grad.clone() for name, p in model.named_parameters()}


def compare(actual, expected, inputs):
    """parity.compare, of the tokens that are no padding."""
    mask = inputs.get("attention_mask")
    return parity.compare(actual, expected, None if mask is None else mask.bool())


def check_forward(report, program, folder, name, model):
    for kind in ("plain", "right", "left", "left_positions", "positions"):
        inputs = make_inputs(model.config, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        for dtype, tolerance in (("float32", parity.TOLERANCE), ("float64", 1e-12)):
            given = {n: t.int() for n, t in inputs.items()} if kind == "right" else inputs
            got, got_gradients = forward(program, folder, given, dtype, flags=parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", compare(got, outputs, inputs), tolerance)
            report.error(f"{name} {kind} {dtype} gradients",
                         compare(got_gradients, gradients, inputs), tolerance)
    inputs = make_inputs(model.config, "plain", seed=8)
    got, _ = forward(program, folder, inputs, "bfloat16")
    error, worst = compare({"loss": got["loss"]}, {"loss": reference(model, inputs)[0]["loss"]}, inputs)
    report(f"{name} plain bfloat16 loss", error <= 2e-2, f"{error:.2e}")


def check_sdpa(report, program, folder, model):
    """Transformers' default attention gives zeros for a query without keys; so does the program."""
    default = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    inputs = make_inputs(model.config, "left", seed=9)
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    inputs["labels"] = ids.masked_fill(~mask, -100)  # the last padding token predicts the first one
    outputs, gradients = reference(default, inputs)
    got, got_gradients = forward(program, folder, inputs)
    report.error("queries without keys: outputs", compare(got, outputs, {}), parity.TOLERANCE)
    report.error("queries without keys: gradients", compare(got_gradients, gradients, inputs),
                 parity.TOLERANCE)


def check_generation(report, program, folder, name, model):
    model = model.double()
    random = torch.Generator().manual_seed(11)
    new = 12
    prompts = [torch.randint(3, model.config.vocab_size, (n,), generator=random) for n in (1, 4, 9, 13)]
    for flags, options in (
        ([], {}),
        (["--repetition-penalty", "1.3"], dict(repetition_penalty=1.3)),
        (["--num-beams", "3"], dict(num_beams=3)),
        (["--num-beams=4", "--length_penalty=0.2"], dict(num_beams=4, length_penalty=0.2)),
        (["--num-beams=2", "--repetition-penalty=1.2"], dict(num_beams=2, repetition_penalty=1.2)),
    ):
        same = 0
        for prompt in prompts:
            want = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None],
                                  max_new_tokens=new, do_sample=False, pad_token_id=0, **options)
            printed = run(program, "generate", "--model", folder, "--ids",
                          ",".join(map(str, prompt.tolist())), "--max-new-tokens", new, *flags)
            got = [int(i) for i in printed.split(",")]
            if got == want[0].tolist():
                same += 1
            else:
                print("  transformers", want[0].tolist(), "\n  program     ", got)
        report(f"{name} generate {' '.join(flags) or 'greedy'}", same == len(prompts),
               f"{same} of {len(prompts)} texts the same")


def check_saving(report, resave, folder, name, model):
    inputs = make_inputs(model.config, "plain", seed=12)
    want = model.float()(**{"input_ids": inputs["input_ids"]}).logits
    for shards, limit in (("one file", 10**9), ("shards", 20000)):
        with tempfile.TemporaryDirectory() as work:
            saved = os.path.join(work, "saved")
            run(resave, folder, saved, limit)
            ours, messages = GPT2LMHeadModel.from_pretrained(saved, attn_implementation="eager",
                                                             output_loading_info=True)
            clean = not any(messages[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            same = torch.equal(ours.eval()(input_ids=inputs["input_ids"]).logits, want)
            report(f"{name} saved by the program, {shards}", clean and same,
                   f"{len(os.listdir(saved))} files")


def check_old_names(report, program, folder, name, model):
    """What older files look like: no prefix, mask buffers, a copy of the tied weight."""
    inputs = make_inputs(model.config, "plain", seed=13)
    want, _ = reference(model, inputs)
    with tempfile.TemporaryDirectory() as old:
        model.float().config.save_pretrained(old)
        tensors = {n.removeprefix("transformer."): t.clone() for n, t in model.state_dict().items()}
        for layer in range(model.config.n_layer):
            tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 8, 8)
            tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, os.path.join(old, "model.safetensors"))
        report.error(f"{name} old names", compare(forward(program, old, inputs)[0], want, inputs),
                     parity.TOLERANCE)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        with tempfile.TemporaryDirectory() as saved:
            model.to(dtype).save_pretrained(saved)
            want, _ = reference(model, inputs)
            report.error(f"{name} saved as {dtype}",
                         compare(forward(program, saved, inputs)[0], want, inputs), parity.TOLERANCE)


def check(args):
    report = Report()
    for seed, (name, fields) in enumerate(MODELS.items()):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(fields, seed)
            model.save_pretrained(folder)
            check_forward(report, args.tessera, folder, name, model)
            if name == "plain":
                check_sdpa(report, args.tessera, folder, model)
            check_generation(report, args.tessera, folder, name, model)
            check_saving(report, args.resave, folder, name, model)
            check_old_names(report, args.tessera, folder, name, model)
    return report.finish()


def adamw_losses(model, batches):
    """20 steps in float64: lr 1e-3, betas 0.9 and 0.95, weight decay 0.1 of matrices."""
    model = model.double()
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for ids in batches:
        optimizer.zero_grad()
        loss = shifted_loss(model(input_ids=ids).logits, ids)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def write(_):
    for seed, (name, fields) in enumerate(GOLDEN_MODELS.items()):
        folder = GOLDENS / name
        folder.mkdir(parents=True, exist_ok=True)
        model = make_model(fields, 100 + seed)
        model.save_pretrained(folder)
        random = torch.Generator().manual_seed(seed)
        batches = torch.randint(model.config.vocab_size, (20, 4, 9), generator=random)
        for kind in ("plain", "right", "left_positions", "hidden"):
            hidden = kind == "hidden"
            inputs = make_inputs(model.config, "left_positions" if hidden else kind, seed=20 + seed)
            outputs, gradients = reference(model, inputs, kind == "left_positions", hidden)
            tensors = {f"in.{n}": t for n, t in inputs.items()}
            tensors.update({f"out.{n}": t for n, t in outputs.items()})
            tensors.update({f"grad.{n}": t for n, t in gradients.items()})
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{kind}.safetensors")
        prompt = torch.tensor([[3, 5, 7]])
        text = model.double().generate(prompt, attention_mask=torch.ones_like(prompt),
                                       max_new_tokens=12, do_sample=False, pad_token_id=0)
        save_file({"batches": batches, "losses": adamw_losses(model, batches),
                   "greedy": text[0].contiguous()}, folder / "runs.safetensors")
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
