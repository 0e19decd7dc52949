# SPDX-License-Identifier: Apache-2.0
"""The recurrent layers of nn:recurrent_benchmark with PyTorch, on two threads.

    bazel run -c opt //nn:recurrent_benchmark -- --benchmark_format=json > ours.json
    python bench/recurrent.py ours.json

On a machine that others use, the processor's time of one thread says more:

    taskset -c 0 bazel-bin/nn/recurrent_benchmark --benchmark_format=json > ours.json
    taskset -c 0 python bench/recurrent.py ours.json --threads 1 --processor-time

Prints milliseconds of both and how many times as fast as PyTorch we are.
"""
import torch

from convolution import compare


def peer(name, milliseconds):
    """Of a name like Lstm/Training/32/50/256/256."""
    layer, what, *numbers = name.split("/")[:6]
    batch, steps, inputs, hidden = map(int, numbers)
    x = torch.randn(batch, steps, inputs, requires_grad=what == "Training")
    net = getattr(torch.nn, layer.upper())(inputs, hidden, batch_first=True)
    if what == "Forward":
        with torch.no_grad():
            return milliseconds(lambda: net(x))

    def train():
        net(x)[0].sum().backward()
        net.zero_grad()
        x.grad = None

    return milliseconds(train)


if __name__ == "__main__":
    compare(__doc__, "layer/pass/batch/steps/inputs/hidden", peer)
