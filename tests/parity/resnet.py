"""ResNet-18 of examples/vision against PyTorch: the same weights, pictures and order.

    pip install torch safetensors
    bazel build -c opt //examples/vision:vision
    python tests/parity/resnet.py fashion-mnist [--steps 200] [--batch 64]

Trains both by AdamW on Fashion-MNIST's first pictures (a folder of its four .gz files), in float32
on two threads, and prints losses step by step, accuracy on the first test pictures (running
statistics included), and seconds per step: of the wall and of the processor. The network is
torchvision's, written down here.
"""
import argparse
import gzip
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from parity import Report

CONFIG = {"model_type": "torchvision-resnet", "architectures": ["ResNet"], "width": 64,
          "blocks_per_stage": 2, "num_channels": 1, "image_size": 28, "num_labels": 10}


class Block(nn.Module):
    def __init__(self, in_channels, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(branch + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(CONFIG["num_channels"], 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for stage in range(4):
            width = 64 << stage
            first = Block(width // 2 if stage else width, width, 2 if stage else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, Block(width, width, 1)))
        self.fc = nn.Linear(512, CONFIG["num_labels"])

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def idx(path, count):
    """The first elements of an IDX file, and its header for so many."""
    data = gzip.open(path).read()
    dims = struct.unpack(f">{data[3]}I", data[4:4 + 4 * data[3]])
    head = data[:4] + struct.pack(f">{data[3]}I", count, *dims[1:])
    size = count
    for d in dims[1:]:
        size *= d
    body = data[4 + 4 * data[3]:][:size]
    tensor = torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(count, *dims[1:])
    return tensor, head + body


def subset(folder, out, pictures):
    """Writes the first pictures of both parts; returns them as the model sees them."""
    parts = {}
    for part, count in pictures.items():
        for kind in ("images-idx3", "labels-idx1"):
            tensor, raw = idx(os.path.join(folder, f"{part}-{kind}-ubyte.gz"), count)
            with open(os.path.join(out, f"{part}-{kind}-ubyte"), "wb") as file:
                file.write(raw)
            parts[part, kind[:6]] = tensor
    return {part: (((parts[part, "images"].float() / 255 - 0.5) / 0.5)[:, None],
                   parts[part, "labels"].long()) for part in pictures}


def train_peer(net, train, steps, batch, rate):
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.0, fused=True)
    losses, wall, cpu = [], [], []
    net.train()
    for step in range(steps):
        rows = slice(step * batch % len(train[1]), step * batch % len(train[1]) + batch)
        begin, used = time.perf_counter(), time.process_time()
        loss = F.cross_entropy(net(train[0][rows]), train[1][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    return losses, sorted(wall)[steps // 2], sum(cpu) / steps


def accuracy(net, pictures):
    net.eval()
    with torch.no_grad():
        guesses = torch.cat([net(x).argmax(1) for x in pictures[0].split(256)])
    return (guesses == pictures[1]).float().mean().item()


def train_ours(program, work, steps, batch, rate):
    """Rows of metrics and seconds of the processor."""
    out = os.path.join(work, f"run{steps}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [program, "train", os.path.join(work, "model"), "--task", "image_classification", "--data",
         work, "--out", out, "--batch-size", str(batch), "--max-steps", str(steps), "--lr",
         str(rate), "--lr-schedule", "constant", "--weight-decay", "0", "--max-grad-norm", "0",
         "--shuffle", "false", "--log-interval", "1", "--betas", "0.9,0.999"],
        check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    return rows, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="the folder with Fashion-MNIST's files")
    parser.add_argument("--program", default="bazel-bin/examples/vision/vision")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    net = ResNet18()
    steps, batch = arguments.steps, arguments.batch
    with tempfile.TemporaryDirectory() as work:
        data = subset(arguments.data, work, {"train": min(60000, steps * batch), "t10k": 1000})
        os.mkdir(os.path.join(work, "model"))
        with open(os.path.join(work, "model", "config.json"), "w") as file:
            json.dump(CONFIG, file)
        save_file(net.state_dict(), os.path.join(work, "model", "model.safetensors"))
        _, start = train_ours(arguments.program, work, 1, batch, arguments.lr)
        rows, used = train_ours(arguments.program, work, steps, batch, arguments.lr)
        theirs, wall, cpu = train_peer(net, data["train"], steps, batch, arguments.lr)
        ours = [row["loss"] for row in rows if "loss" in row]
        print("step  loss  PyTorch's loss")
        for step in sorted({1, 2, 3, 5, 10, *range(20, steps + 1, 20)}):
            if step <= steps:
                print(f"{step:4d}  {ours[step - 1]:.5f}  {theirs[step - 1]:.5f}")
        mine = rows[-1]["val_accuracy"]
        print(f"accuracy {mine:.4f}, PyTorch {accuracy(net, data['t10k']):.4f}")
        own = (used - start) / (steps - 1)
        print(f"seconds of the processor per step {own:.4f}, PyTorch {cpu:.4f}: "
              f"{cpu / own:.2f} times as fast; PyTorch's median step {wall:.4f} s")
        print("ours:", {k: v for k, v in rows[steps // 2].items() if "second" in k or "time" in k})
        report = Report()
        report.error("the first loss", (abs(ours[0] - theirs[0]), "step 1"), 1e-5)
        report.error("the loss of step 3", (abs(ours[2] - theirs[2]), "step 3"), 1e-2)
        return report.finish()


if __name__ == "__main__":
    sys.exit(main())
