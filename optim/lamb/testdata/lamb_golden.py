# SPDX-License-Identifier: Apache-2.0
"""Writes lamb_golden.h: LAMB as algorithm 2 of You et al. 2020 writes it, in float64.

    python3 optim/lamb/testdata/lamb_golden.py > optim/lamb/testdata/lamb_golden.h   # needs torch
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "testdata"))
import golden_problem


def lamb(betas, eps):
    def update(p, g, state, step, lr, weight_decay):
        m = betas[0] * state.get("m", torch.zeros_like(p)) + (1 - betas[0]) * g
        v = betas[1] * state.get("v", torch.zeros_like(p)) + (1 - betas[1]) * g * g
        state["m"], state["v"] = m, v
        m_hat = m / (1 - betas[0] ** step)
        v_hat = v / (1 - betas[1] ** step)
        r = m_hat / (torch.sqrt(v_hat) + eps) + weight_decay * p
        return p - lr * torch.linalg.vector_norm(p) / torch.linalg.vector_norm(r) * r

    return lambda groups, table: [golden_problem.Published(groups, update)]


if __name__ == "__main__":
    golden_problem.write(
        "lamb", [("Lamb", 0.01, lamb((0.9, 0.999), 1e-6)), ("LambBetas", 0.002, lamb((0.8, 0.95), 1e-3))]
    )
