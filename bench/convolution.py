# SPDX-License-Identifier: Apache-2.0
"""The convolutions of ops/convolution:convolution_benchmark with PyTorch, on two threads.

    pip install torch
    bazel run -c opt //ops/convolution:convolution_benchmark -- --benchmark_format=json > ours.json
    python bench/convolution.py ours.json

On a machine that others use, the processor's time of one thread says more:

    taskset -c 0 bazel-bin/ops/convolution/convolution_benchmark --benchmark_format=json > ours.json
    taskset -c 0 python bench/convolution.py ours.json --threads 1 --processor-time

Prints milliseconds of both and how many times as fast as PyTorch we are.
"""
import argparse
import json
import time

import torch


def median(run, clock):
    """Milliseconds, of ten runs after two."""
    times = []
    for _ in range(12):
        begin = clock()
        run()
        times.append(clock() - begin)
    return 1e3 * sorted(times[2:])[5]


def peer(name, milliseconds):
    """Of a name like Forward/8/64/64/56/3/1/1/real_time."""
    what, *numbers = name.split("/")[:8]
    n, c_in, c_out, size, kernel, stride, groups = map(int, numbers)
    x = torch.randn(n, c_in, size, size)
    w = torch.randn(c_out, c_in // groups, kernel, kernel)
    rest = ([stride, stride], [kernel // 2, kernel // 2], [1, 1], False, [0, 0], groups)
    with torch.no_grad():
        if what == "Forward":
            return milliseconds(lambda: torch.convolution(x, w, None, *rest))
        dy = torch.randn_like(torch.convolution(x, w, None, *rest))
        mask = [what == "InputGrad", what == "WeightGrad", False]
        return milliseconds(
            lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *rest, mask))


def compare(description, columns, peer):
    """Prints a table: a benchmark's rows, and `peer` of each row's name and of what measures it."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("ours", help="what the benchmark printed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true", help="in place of the wall's")
    arguments = parser.parse_args()
    ours, clock = "real_time", time.perf_counter
    if arguments.processor_time:
        ours, clock = "cpu_time", time.process_time
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    with open(arguments.ours) as file:
        rows = json.load(file)["benchmarks"]
    print(f"| {columns} | ms | PyTorch, ms | ratio |")
    print("|---|---|---|---|")
    for row in rows:
        name = row["name"].removesuffix("/real_time")
        theirs = peer(name, lambda run: median(run, clock))
        print(f"| {name} | {row[ours]:.2f} | {theirs:.2f} | {theirs / row[ours]:.2f} |",
              flush=True)


if __name__ == "__main__":
    compare(__doc__, "operation, n/in/out/size/kernel/stride/groups", peer)
