# SPDX-License-Identifier: Apache-2.0
"""T5 v1.0 and v1.1 against transformers: goldens for the unit test, and a check of the program.

    pip install torch 'transformers<5' safetensors
    python tests/parity/t5_model.py write
        writes tests/parity/goldens/t5/, which t5_golden_test.cc reads
    python tests/parity/t5_model.py check [--tessera BINARY] [--resave BINARY]
        makes random models of unusual shapes, runs them with the program and with transformers in
        float64, and prints for every case the worst relative error of outputs and of gradients;
        compares padded sources with plain ones, generated tokens, and files saved by either side
"""
import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/t5"

CASES = {
    "v1.0": dict(vocab_size=101, d_model=60, d_kv=7, d_ff=77, num_layers=3, num_decoder_layers=2,
                 num_heads=5, relative_attention_num_buckets=12, relative_attention_max_distance=19),
    "v1.0 untied": dict(vocab_size=67, d_model=39, d_kv=13, d_ff=31, num_layers=2, num_heads=3,
                        relative_attention_num_buckets=32, relative_attention_max_distance=128,
                        tie_word_embeddings=False, layer_norm_epsilon=1e-3, decoder_start_token_id=4,
                        pad_token_id=5),
    "v1.1": dict(vocab_size=89, d_model=48, d_kv=16, d_ff=53, num_layers=2, num_decoder_layers=3,
                 num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=30,
                 feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "v1.1 tied": dict(vocab_size=71, d_model=36, d_kv=9, d_ff=41, num_layers=1, num_heads=6,
                      feed_forward_proj="gated-silu"),
}


def make_model(fields, seed):
    fields = {"decoder_start_token_id": 0, **fields}
    config = hf.T5Config(**fields)
    config._attn_implementation = "eager"
    model = parity.randomise(hf.T5ForConditionalGeneration(config), seed)
    with torch.no_grad():  # T5 does not scale scores; its queries are small instead
        for name, p in model.named_parameters():
            if name.endswith("Attention.q.weight"):
                p.mul_(config.d_kv ** -0.5)
    return model


def make_inputs(model, kind, seed, rows=3, source=17, target=11):
    random = torch.Generator().manual_seed(seed)
    vocab = model.config.vocab_size
    ids = torch.randint(vocab, (rows, source), generator=random)
    inputs = {"input_ids": ids}
    if kind != "plain":
        lengths = torch.randint(2, source + 1, (rows, 1), generator=random)
        lengths[0] = source
        column = torch.arange(source)[None, :]
        mask = column < lengths if kind == "right" else column >= source - lengths
        if kind == "holes":
            mask = torch.rand((rows, source), generator=random) < 0.6
            mask[:, 0] = True
        inputs["attention_mask"] = mask.long()
    labels = torch.randint(vocab, (rows, target), generator=random)
    inputs["labels"] = labels.masked_fill(torch.rand(labels.shape, generator=random) < 0.3, -100)
    if kind == "left":
        inputs["decoder_input_ids"] = torch.randint(vocab, (rows, target), generator=random)
        mask = torch.arange(target)[None, :] < torch.tensor([[target], [target - 3], [target - 5]])
        inputs["decoder_attention_mask"] = mask.long()
    return inputs


def all_double():
    """transformers computes T5's norms and softmax in float32 whatever the model's dtype; here they
    stay in float64."""
    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    hf.models.t5.modeling_t5.T5LayerNorm.forward = norm
    to_float = torch.Tensor.float
    torch.Tensor.float = lambda x: x if x.dtype == torch.float64 else to_float(x)


def reference(model, inputs, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too) and gradients in float64, by the
    names of the program's files."""
    model = model.double()
    out = model(**inputs, output_hidden_states=True)
    outputs = {n: out[n] for n in ("loss", "logits", "encoder_last_hidden_state")}
    if hidden:
        outputs["last_hidden_state"] = out.decoder_hidden_states[-1]
        outputs.update(parity.numbered(out.decoder_hidden_states))
        outputs.update(parity.numbered(out.encoder_hidden_states, "encoder_"))
    gradients = parity.gradients_of(model, out.loss)
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def check_forward(report, program, folder, name, model):
    for kind in ("plain", "right", "left", "holes"):
        inputs = make_inputs(model, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        rows = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
        for dtype, tolerance in (("float32", parity.TOLERANCE), ("float64", 1e-12)):
            got, got_gradients = parity.forward(program, folder, inputs, dtype,
                                                flags=parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", parity.compare(got, outputs, rows), tolerance)
            report.error(f"{name} {kind} {dtype} gradients",
                         parity.compare(got_gradients, gradients), tolerance)


def check_padding(report, program, folder, name, model):
    """A source padded on the right gives what it gives alone."""
    inputs = make_inputs(model, "plain", seed=8, rows=1)
    ids, length = inputs["input_ids"], 9
    alone = parity.forward(program, folder, dict(inputs, input_ids=ids[:, :length]), gradients=False)[0]
    mask = torch.zeros_like(ids)
    mask[:, :length] = 1
    padded = parity.forward(program, folder, dict(inputs, attention_mask=mask), gradients=False)[0]
    same = all(torch.allclose(padded[n][:, :length] if n.startswith("encoder") else padded[n], t,
                              rtol=1e-6, atol=1e-6) for n, t in alone.items())
    report(f"{name} padded source as alone", same)


def check_generation(report, program, folder, name, model):
    model = model.double()
    sources = [torch.randint(model.config.vocab_size, (1, n), generator=torch.Generator().manual_seed(n))
               for n in (3, 8, 13)]
    options = {
        "greedy": {},
        "4 beams": dict(num_beams=4),
        "3 beams, length penalty 2, early stop": dict(num_beams=3, length_penalty=2.0,
                                                      early_stopping=True),
    }
    ends = {n: getattr(model.config, n) for n in
            ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
    for what, arguments in options.items():
        same = 0
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({**ends, **arguments}, file)
        for source in sources:
            want = model.generate(source, attention_mask=torch.ones_like(source), do_sample=False,
                                  max_new_tokens=12, use_cache=False, **arguments)[0, 1:]
            ids = ",".join(map(str, source[0].tolist()))
            got = parity.run(program, "generate", "--model", folder, "--ids", ids,
                             "--max-new-tokens", "12").strip()
            same += got == ",".join(map(str, want.tolist()))
        report(f"{name} generate {what}", same == len(sources), f"{same} of {len(sources)}")


def check_old_names(report, program, folder, name, model):
    """What older files look like: every use of the shared embedding has a copy, or one alone."""
    inputs = make_inputs(model, "plain", seed=13)
    want, _ = reference(model, inputs)
    for keep in (("shared", "encoder.embed_tokens", "decoder.embed_tokens"), ("encoder.embed_tokens",)):
        with tempfile.TemporaryDirectory() as old:
            model.float().config.save_pretrained(old)
            tensors = load_file(os.path.join(folder, "model.safetensors"))
            shared = tensors.pop("shared.weight")
            tensors.update({f"{n}.weight": shared.clone() for n in keep})
            tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(2, 2)
            save_file(tensors, os.path.join(old, "model.safetensors"))
            got = parity.forward(program, old, inputs, gradients=False)[0]
            report.error(f"{name} embedding as {len(keep)} copies outputs",
                         parity.compare(got, want), parity.TOLERANCE)


def check_refusals(report, program, folder, model):
    inputs = make_inputs(model, "plain", seed=3)
    with tempfile.TemporaryDirectory() as work:
        for what, changed, part in (
                ("no target", {"input_ids": inputs["input_ids"]}, "decoder_input_ids"),
                ("rows that differ", dict(inputs, labels=inputs["labels"][:2]), "'labels'"),
                ("an id too large", dict(inputs, labels=inputs["labels"] + 5000), "vocabulary"),
                ("a mask of another shape", dict(inputs, attention_mask=torch.ones(1, 2)),
                 "attention_mask")):
            path = os.path.join(work, "in.safetensors")
            save_file({n: t.contiguous() for n, t in changed.items()}, path)
            message = parity.failure(program, "forward", "--model", folder, "--inputs", path,
                                     "--outputs", os.path.join(work, "out"))
            report(f"refused: {what}", part in message, message.replace(work, ""))


def check(args):
    report = parity.Report()
    for seed, (name, fields) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(fields, seed)
            model.save_pretrained(folder)
            check_forward(report, args.tessera, folder, name, model)
            check_padding(report, args.tessera, folder, name, model)
            check_generation(report, args.tessera, folder, name, model)
            check_old_names(report, args.tessera, folder, name, model)
            parity.check_saving(report, args.resave, folder, name, hf.T5ForConditionalGeneration, model)
            if name == "v1.0":
                check_refusals(report, args.tessera, folder, model)
    return report.finish()


def write(_):
    small = dict(vocab_size=37, d_model=12, d_kv=5, d_ff=19, num_layers=2, num_heads=3,
                 relative_attention_num_buckets=8, relative_attention_max_distance=12)
    for seed, (name, fields) in enumerate([
            ("v1_0", {}),
            ("v1_1", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False))]):
        folder = GOLDENS / name
        folder.mkdir(parents=True, exist_ok=True)
        model = make_model({**small, **fields}, 100 + seed)
        model.save_pretrained(folder)
        for kind in ("plain", "right", "left", "hidden"):
            hidden = kind == "hidden"
            inputs = make_inputs(model, "left" if hidden else kind, seed=20 + seed)
            outputs, gradients = reference(model, inputs, hidden)
            tensors = {f"in.{n}": t for n, t in inputs.items()}
            tensors.update({f"out.{n}": t for n, t in outputs.items()})
            if kind == "right":
                tensors.update({f"grad.{n}": t for n, t in gradients.items()})
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{kind}.safetensors")
        for extra in folder.glob("generation_config.json"):
            extra.unlink()
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    all_double()
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
