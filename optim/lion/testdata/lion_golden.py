# SPDX-License-Identifier: Apache-2.0
"""Writes lion_golden.h: Lion as algorithm 2 of Chen et al. 2023 writes it, in float64.

    python3 optim/lion/testdata/lion_golden.py > optim/lion/testdata/lion_golden.h   # needs torch
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "testdata"))
import golden_problem


def lion(betas):
    def update(p, g, state, step, lr, weight_decay):
        m = state.get("m", torch.zeros_like(p))
        c = betas[0] * m + (1 - betas[0]) * g
        state["m"] = betas[1] * m + (1 - betas[1]) * g
        return p - lr * (torch.sign(c) + weight_decay * p)

    return lambda groups, table: [golden_problem.Published(groups, update)]


if __name__ == "__main__":
    golden_problem.write("lion", [("Lion", 0.01, lion((0.9, 0.99))), ("LionBetas", 0.003, lion((0.95, 0.98)))])
