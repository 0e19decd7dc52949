#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed and memory of Tessera and of PyTorch on the CPU, side by side.

    bazel build //bench:train_step
    <venv>/bin/python bench/train_step.py --rounds 6 --steps 2
    <venv>/bin/python bench/train_step.py --model t5-small --batch 8 --tokens 128
    <venv>/bin/python bench/train_step.py --model resnet18-64 --batch 32
    <venv>/bin/python bench/train_step.py --dropout 0.1 --dtype bfloat16
    <venv>/bin/python bench/train_step.py --ranks 2 --threads 1      # data parallel
    <venv>/bin/python bench/train_step.py --model bench/llama_100m --lora-r 8 --target-modules all-linear

A preset (GPT-2 124M where none is named) on random inputs: next tokens (GPT), every seventh token
to be guessed (BERT), pictures with a label each (ViT, the ResNet of examples/vision), sources with targets of a quarter of their
length (T5). A step is forward, backward, clipping of the gradient's norm and AdamW. The two run as processes of their own and take turns (A B A B ...), so that a busy machine slows
both. Needs torch and transformers<5 in the Python that runs it. The peer is Hugging Face's
model of the same configuration (`train_step --print-config` gives it; the ResNet's is that of
bench/resnet.py) with scaled_dot_product_attention
where it has it, PyTorch's fused tanh-GELU in place of the composed one that GPT-2's configuration
names (the same function, faster) and fused AdamW. bfloat16 is
autocast with float32 weights there, bfloat16 weights with float32 masters here.

With --lora-r both train LoRA alone, PyTorch's by PEFT; in bfloat16 its frozen weights are bfloat16
too, and the adapter's float32.

With --ranks N both train on N ranks of this machine, each with a batch of its own and --threads
threads: Tessera under mpirun, PyTorch as DistributedDataParallel over gloo with bucket views.
With --zero N Tessera shares out its state by ZeRO's stage N, and the peer is FullyShardedDataParallel:
SHARD_GRAD_OP for stage 2, FULL_SHARD for stage 3, a unit per block, parameters kept by their own names.
--alone leaves PyTorch out and compares N ranks with one rank of N times the threads and the batch.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate", "attn_pdrop",
            "embd_pdrop", "resid_pdrop")
TESSERA = os.path.join(os.path.dirname(__file__), "..", "bazel-bin", "bench", "train_step")


def join_ranks(options):
    """Starts the other ranks, and joins the group; returns this process's rank."""
    import torch.distributed

    rank = int(os.environ.get("RANK", 0))
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["BENCH_PORT"] = str(free.getsockname()[1])
        for other in range(1, options.ranks):
            subprocess.Popen([sys.executable] + sys.argv, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, env={**os.environ, "RANK": str(other)})
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{os.environ['BENCH_PORT']}", rank=rank,
        world_size=options.ranks)
    return rank


def turns(rank, ranks):
    """The numbers of steps that standard input asks for, on every rank."""
    import torch

    while True:
        count = torch.tensor([int((sys.stdin.readline() if rank == 0 else "") or 0)])
        if ranks > 1:
            torch.distributed.broadcast(count, 0)
        if count.item() == 0:
            return
        yield count.item()


def build_peer(config, options):
    """The model of a config.json in transformers, and what bench/train_step.cc feeds to its own."""
    import torch

    kind = config["model_type"]

    def pictures():
        size = config["image_size"]
        return torch.randn(options.batch, config["num_channels"], size, size)

    if kind == "torchvision-resnet":
        import resnet

        return resnet.Classifier(config), {"pixel_values": pictures(),
                                           "labels": torch.randint(10, (options.batch,))}
    import transformers

    for key in DROPOUTS:
        if key in config:
            config[key] = options.dropout
    if kind == "gpt2":
        config |= {key: options.dropout for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop")}
        config["activation_function"] = options.activation
    configuration = transformers.AutoConfig.for_model(**config, use_cache=False)
    architecture = getattr(transformers, {
        "gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM",
        "vit": "ViTForImageClassification", "t5": "T5ForConditionalGeneration",
        "llama": "LlamaForCausalLM"}[kind])
    attention = "sdpa" if architecture._supports_sdpa else "eager"
    model = architecture._from_config(configuration, attn_implementation=attention)
    if kind == "vit":
        return model, {"pixel_values": pictures(), "labels": torch.randint(10, (options.batch,))}
    def ids(tokens):
        return torch.randint(config["vocab_size"], (options.batch, tokens))
    labels = ids(max(1, options.tokens // 4) if kind == "t5" else options.tokens)
    if kind in ("bert", "roberta"):
        labels.view(-1)[torch.arange(labels.numel()) % 7 != 0] = -100
    return model, {"input_ids": ids(options.tokens), "labels": labels}


def fully_sharded(model, options):
    """FSDP with a unit for each member of the model's lists of blocks, on the CPU."""
    import torch
    from torch.distributed import fsdp

    blocks = [child for module in model.modules() if isinstance(module, torch.nn.ModuleList)
              for child in module]
    return fsdp.FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), use_orig_params=True,
        auto_wrap_policy=fsdp.wrap.CustomPolicy(lambda module: module in blocks),
        sharding_strategy=(fsdp.ShardingStrategy.SHARD_GRAD_OP if options.zero == 2
                           else fsdp.ShardingStrategy.FULL_SHARD))


def run_torch(options):
    """The worker: the same protocol as bench/train_step.cc."""
    import torch

    torch.set_num_threads(options.threads)
    rank = join_ranks(options) if options.ranks > 1 else 0
    print("start", flush=True)
    torch.manual_seed(1)
    config = json.loads(subprocess.run(
        [options.tessera, f"--model={options.model}", "--print-config"], check=True,
        stdout=subprocess.PIPE).stdout)
    model, inputs = build_peer(config, options)
    if options.lora_r > 0:
        import peft

        names = options.target_modules
        model = peft.get_peft_model(
            model.to(torch.bfloat16) if options.dtype == "bfloat16" else model,
            peft.LoraConfig(r=options.lora_r, lora_alpha=2 * options.lora_r, task_type="CAUSAL_LM",
                            target_modules=names if names == "all-linear" else names.split(",")))
    model.train()
    if options.ranks > 1:
        model = fully_sharded(model, options) if options.zero > 1 else (
            torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True))
    trained = [p for p in model.parameters() if p.requires_grad]
    decay = [p for p in trained if p.ndim >= 2]
    plain = [p for p in trained if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.1}]
    if plain:
        groups.append({"params": plain, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=1e-4, **{options.adamw: True})
    half = options.dtype == "bfloat16"
    for count in turns(rank, options.ranks):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = model(**inputs).loss
            loss.backward()
            if options.zero > 1:
                model.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=options.ranks == 1)
            loss = loss.item()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)


class Peer:
    def __init__(self, name, command, processor_time=False):
        self.name = name
        self.processor_time = processor_time
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "start\n", f"{name} did not start"
        self.rss_before = self.memory("VmRSS")
        self.seconds = []
        self.report = {}

    def memory(self, key):
        with open(f"/proc/{self.process.pid}/status") as status:
            lines = [line for line in status if line.startswith(key + ":")]
        return int(lines[0].split()[1]) * 1024

    def processor_seconds(self):
        """Of all threads so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def steps(self, count, keep):
        time.sleep(0.5)  # the other side's threads spin for a while after their last loop
        before = self.processor_seconds()
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.report = json.loads(self.process.stdout.readline())
        if keep:
            self.seconds += ([(self.processor_seconds() - before) / count] if self.processor_time
                             else self.report["seconds"])

    def close(self):
        # Under mpirun the process started is not a rank; ranks of ours tell.
        self.growth = self.report.get("growth_bytes", self.memory("VmHWM") - self.rss_before)
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each side")
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn")
    parser.add_argument("--warmup", type=int, default=2, help="steps that do not count")
    parser.add_argument("--model", default="gpt2", help="a preset, or a folder with config.json")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lora-r", type=int, default=0, help="train LoRA of this rank alone")
    parser.add_argument("--target-modules", default="q_proj,v_proj", help="LoRA's, or all-linear")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks")
    parser.add_argument("--zero", type=int, default=0, choices=[0, 2, 3], help="ZeRO's stage")
    parser.add_argument("--alone", action="store_true", help="against one rank instead of PyTorch")
    parser.add_argument("--processor-time", action="store_true",
                        help="a turn's, in place of the wall's: with one thread, where others use the machine")
    parser.add_argument("--adamw", default="fused", choices=["fused", "foreach"])
    parser.add_argument("--activation", default="gelu_pytorch_tanh", help="of the PyTorch model")
    parser.add_argument("--tessera", default=TESSERA, help="the program of bench/train_step.cc")
    options = parser.parse_args()
    if options.worker:
        run_torch(options)
        return
    if not os.path.exists(options.tessera):
        sys.exit(f"error: {options.tessera} is missing: bazel build //bench:train_step")
    def shared(**changed):
        values = {**vars(options), **changed}
        return [f"--{name.replace('_', '-')}={values[name]}"
                for name in ("model", "batch", "tokens", "dropout", "dtype", "threads", "lora_r", "target_modules")]

    mpirun = ["mpirun", "--quiet", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
              "-n", str(options.ranks)] if options.ranks > 1 else []
    peers = [Peer("tessera", mpirun + [options.tessera, f"--zero={options.zero}"] + shared(),
                  options.processor_time)]
    if options.alone:
        peers.append(Peer("one rank", [options.tessera] + shared(
            batch=options.batch * options.ranks, threads=options.threads * options.ranks),
                          options.processor_time))
    else:
        peers.append(
            Peer("pytorch", [sys.executable, os.path.abspath(__file__), "--worker"] + shared() +
                 [f"--tessera={options.tessera}", f"--adamw={options.adamw}", f"--activation={options.activation}",
                  f"--ranks={options.ranks}", f"--zero={options.zero}"], options.processor_time))
    for peer in peers:
        peer.steps(options.warmup, keep=False)
    for _ in range(options.rounds):
        for peer in peers:
            peer.steps(options.steps, keep=True)
    for peer in peers:
        peer.close()

    tokens = options.batch * options.tokens * options.ranks
    print(f"{options.model}, {options.dtype}, {options.ranks} ranks, batch {options.batch}x{options.tokens} each, "
          f"dropout {options.dropout}, {options.threads} threads each, {options.rounds} rounds of "
          f"{options.steps} steps")
    for peer in peers:
        median = statistics.median(peer.seconds)
        print(f"{peer.name}: median {median:.3f} s, min {min(peer.seconds):.3f} s, "
              f"{tokens / median:.0f} tokens/s (best {tokens / min(peer.seconds):.0f}); resident "
              f"memory of rank 0 grew by {peer.growth / 1e6:.0f} MB"
              + (f"; allocator's peak {peer.report['peak_bytes'] / 1e6:.0f} MB"
                 if "peak_bytes" in peer.report else ""))
    ours, theirs = peers
    medians = statistics.median(theirs.seconds) / statistics.median(ours.seconds)
    minima = min(theirs.seconds) / min(ours.seconds)
    print(f"speed of {ours.name} / {theirs.name}: {medians:.2f} by medians, {minima:.2f} by minima")


if __name__ == "__main__":
    main()
