#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 in training, of Tessera (examples/vision) and of PyTorch, with the same numbers.

    bazel build //examples/vision:vision
    <venv>/bin/python bench/resnet.py fashion PATH/fashion-mnist --train 6000 --test 2000
    <venv>/bin/python bench/resnet.py photos PATH/hymenoptera

The first weights (PyTorch's, in a folder that `vision train` reads), the pictures, the order in
which they are drawn, SGD with momentum and all of its settings are the same on both sides; nothing
is augmented. Prints the losses of both, means over spans of steps, and how many of the test
pictures are right at the end. Step times are bench/train_step.py's to compare (--model resnet18-64).
Needs torch, safetensors and, for photos, pillow in the Python that runs it. `ResNet` is He et al.'s
of 18 layers with torchvision's names, and what bench/train_step.py takes, too.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import types

import torch
from torch import nn
from torch.nn import functional as F

VISION = pathlib.Path(__file__).parent.parent / "bazel-bin/examples/vision/vision"


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        inner = F.relu(self.bn1(self.conv1(x)), inplace=True)
        branch = self.bn2(self.conv2(inner))
        branch += x if self.downsample is None else self.downsample(x)
        return F.relu(branch, inplace=True)


class ResNet(nn.Module):
    """Of the config.json of a `torchvision-resnet`."""

    def __init__(self, config):
        super().__init__()
        width, blocks = config["width"], config["blocks_per_stage"]
        self.conv1 = nn.Conv2d(config["num_channels"], width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage in range(4):
            outputs = width << stage
            layers = []
            for place in range(blocks):
                layers.append(BasicBlock(inputs, outputs, 2 if stage and not place else 1))
                inputs = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, config["num_labels"])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class Classifier(ResNet):
    """With its loss, as transformers' models take and give it."""

    def forward(self, pixel_values, labels):
        return types.SimpleNamespace(loss=F.cross_entropy(super().forward(pixel_values), labels))


def drawn(samples, seed, position):
    """The sample at a position of the line: data/dataset/sampler.h, keyed_permutation.cc."""
    mask = 2**64 - 1

    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    bits = max(8, (samples - 1).bit_length())
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    key, round_keys = mix(mix(seed) ^ (position // samples)), []
    for _ in range(8):
        key = mix(key)
        round_keys.append(key)
    x = position % samples
    while True:
        low, high = x & low_mask, x >> low_bits
        for even, odd in zip(round_keys[::2], round_keys[1::2]):
            high ^= (mix(low ^ even) >> 7) & high_mask
            low ^= (mix(high ^ odd) >> 7) & low_mask
        x = high << low_bits | low
        if x < samples:
            return x


def normalised(bytes_of_pictures):
    """What an image processor does by default."""
    return bytes_of_pictures.float().div(255).sub(0.5).div(0.5)


def fashion(options, work):
    """The first pictures of each part, as IDX files for us and as tensors."""
    parts = []
    for part, count in (("train", options.train), ("t10k", options.test)):
        arrays = []
        for what, header, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
            name = f"{part}-{what}-ubyte"
            with gzip.open(os.path.join(options.data, name + ".gz")) as file:
                head = file.read(header)
                body = file.read(count * size)
            assert len(body) == count * size, f"{name} has fewer than {count}"
            (work / "data").mkdir(exist_ok=True)
            (work / "data" / name).write_bytes(head[:4] + count.to_bytes(4, "big") + head[8:] + body)
            arrays.append(torch.frombuffer(bytearray(body), dtype=torch.uint8))
        parts += [normalised(arrays[0].view(count, 1, 28, 28)), arrays[1].long()]
    return work / "data", parts, {"image_size": 28, "num_channels": 1, "num_labels": 10}


def photos(options, _):
    """Class folders, in the order in which they are listed."""
    from PIL import Image
    import numpy

    root, parts = pathlib.Path(options.data), []
    for part in ("train", "val"):
        pictures, labels = [], []
        for label, folder in enumerate(sorted((root / part).iterdir())):
            for path in sorted(folder.iterdir()):
                size = (options.size, options.size)
                image = Image.open(path).convert("RGB").resize(size, Image.BILINEAR)
                pictures.append(torch.from_numpy(numpy.array(image)).permute(2, 0, 1))
                labels.append(label)
        parts += [normalised(torch.stack(pictures)), torch.tensor(labels)]
    return root, parts, {"image_size": options.size, "num_channels": 3, "num_labels": 2}


def train_theirs(model, parts, options):
    """The losses of all steps, and the share of test pictures that is right."""
    x, y, x_test, y_test = parts
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    losses = []
    model.train()
    for step in range(options.steps):
        rows = [drawn(len(y), options.seed, step * options.batch + row)
                for row in range(options.batch)]
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        right = sum((model(x_test[i:i + 100]).argmax(1) == y_test[i:i + 100]).sum().item()
                    for i in range(0, len(y_test), 100))
    return losses, right / len(y_test)


def train_ours(folder, data, work, options):
    out = work / "run"
    subprocess.run(
        [options.vision, "train", folder, "--data", data, "--task", "image_classification",
         "--out", out, "--max-steps", str(options.steps), "--batch-size", str(options.batch),
         "--optimizer", "sgd", "--momentum", "0.9", "--lr", str(options.lr), "--lr-schedule",
         "constant", "--weight-decay", "0", "--max-grad-norm", "0", "--seed", str(options.seed),
         "--threads", str(options.threads), "--log-interval", "1", "--eval-strategy", "steps",
         "--eval-interval", str(options.steps), "--save-strategy", "no"],
        check=True, stdout=subprocess.DEVNULL)
    with open(out / "metrics.jsonl") as file:
        rows = [json.loads(line) for line in file]
    losses = [row["loss"] for row in rows if "loss" in row]
    return losses, [row["val_accuracy"] for row in rows if "val_accuracy" in row][-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["fashion", "photos"])
    parser.add_argument("data", help="Fashion-MNIST's four files, or train and val of class folders")
    parser.add_argument("--train", type=int, default=6000, help="pictures of Fashion-MNIST")
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--size", type=int, default=64, help="of photos")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vision", default=VISION, help="the program of examples/vision")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        from safetensors.torch import save_file

        work = pathlib.Path(folder)
        data, parts, sizes = {"fashion": fashion, "photos": photos}[options.what](options, work)
        config = {"model_type": "torchvision-resnet", "architectures": ["ResNet"], "width": 64,
                  "blocks_per_stage": 2, **sizes}
        model = ResNet(config)
        (work / "model").mkdir()
        (work / "model/config.json").write_text(json.dumps(config))
        save_file(model.state_dict(), work / "model/model.safetensors")
        ours, our_accuracy = train_ours(work / "model", data, work, options)
        theirs, their_accuracy = train_theirs(model, parts, options)
    assert len(ours) == len(theirs) == options.steps
    print(f"{options.what}: {len(parts[1])} pictures, {len(parts[3])} to test, {options.steps} steps of "
          f"{options.batch}, learning rate {options.lr}, seed {options.seed}")
    print("| steps | Tessera | PyTorch |\n|---|---|---|")
    print("\n".join(f"| {i + 1} | {ours[i]:.6f} | {theirs[i]:.6f} |" for i in range(3)))
    span = max(1, options.steps // 8)
    for begin in range(0, options.steps, span):
        a, b = (statistics.mean(losses[begin:begin + span]) for losses in (ours, theirs))
        print(f"| {begin + 1} to {min(begin + span, options.steps)} | {a:.4f} | {b:.4f} |")
    print(f"accuracy: Tessera {our_accuracy:.4f}, PyTorch {their_accuracy:.4f}")


if __name__ == "__main__":
    main()
