# SPDX-License-Identifier: Apache-2.0
"""The problem that the optimizers' golden values are of (optim/testing/optimizer_check.cc has it in C++).

A generator beside an optimizer's test calls `write(name, cases)`; a case is a name and a function that makes
an object with `step()` from two groups of parameters and their learning rates and weight decays.

Element i of parameter k starts at cos(0.9 i + k); its gradient in step s (from 1) is
0.1 sin(0.3 i^2 + 0.7 s + k). "Rounded": both are rounded to bfloat16 first, as half-precision parameters with
float32 masters have them.
"""

import sys

import torch

STEPS = 20
SHAPES = [(7, 5), (6,), (5, 9), (2, 3, 4), (1,), (6, 4)]
TABLE = 5  # this one is an embedding
GROUPS = [[0, 1, 5], [2, 3, 4]]
WEIGHT_DECAY = [0.1, 0.0]
LR_SCALE = [1.0, 0.5]


def _indices(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64)


def _run(make, lr, rounded):
    round_ = (lambda t: t.bfloat16().double()) if rounded else (lambda t: t)
    parameters = []
    for k, shape in enumerate(SHAPES):
        start = round_(torch.cos(0.9 * _indices(shape) + k)).reshape(shape)
        parameters.append(start.clone().requires_grad_(True))
    groups = [
        {"params": [parameters[k] for k in group], "lr": lr * scale, "weight_decay": decay}
        for group, scale, decay in zip(GROUPS, LR_SCALE, WEIGHT_DECAY)
    ]
    optimizers = make(groups, parameters[TABLE])
    for step in range(1, STEPS + 1):
        for k, p in enumerate(parameters):
            grad = 0.1 * torch.sin(0.3 * _indices(p.shape) ** 2 + 0.7 * step + k)
            p.grad = round_(grad).reshape(p.shape)
        for optimizer in optimizers:
            optimizer.step()
    return [x for p in parameters for x in p.detach().flatten().tolist()]


class Published:
    """An optimizer of one function, update(p, g, state, step, lr, weight_decay) -> p, in float64."""

    def __init__(self, groups, update):
        self.groups, self.update, self.count = groups, update, 0
        self.states = {}

    def step(self):
        self.count += 1
        for group in self.groups:
            for p in group["params"]:
                state = self.states.setdefault(id(p), {})
                with torch.no_grad():
                    p.copy_(self.update(p, p.grad, state, self.count, group["lr"], group["weight_decay"]))


def write(name, cases):
    """Prints the header <name>_golden.h; cases: (name, lr, make(groups, table) -> [optimizers])."""
    guard = f"TESSERA_OPTIM_{name.upper()}_TESTDATA_{name.upper()}_GOLDEN_H_"
    print(f"// By testdata/{sys.argv[0].split('/')[-1]} with PyTorch {torch.__version__.split('+')[0]}.")
    print(f"#ifndef {guard}\n#define {guard}\n\n#include <vector>\n\nnamespace tessera::optim {{\n\n// clang-format off")
    for case, lr, make in cases:
        for suffix, rounded in (("", False), ("Rounded", True)):
            values = [f"{v:.13g}" for v in _run(make, lr, rounded)]
            lines = [", ".join(values[i : i + 6]) for i in range(0, len(values), 6)]
            print(f"inline const std::vector<double> k{case}{suffix}Golden = {{")
            print("    " + ",\n    ".join(lines) + "};")
    print(f"// clang-format on\n\n}}  // namespace tessera::optim\n\n#endif  // {guard}")
