# SPDX-License-Identifier: Apache-2.0
"""Writes adafactor_golden.h: torch.optim.Adafactor, and T5's as the Mesh TensorFlow original writes it.

    python3 optim/adafactor/testdata/adafactor_golden.py > optim/adafactor/testdata/adafactor_golden.h   # needs torch
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "testdata"))
import golden_problem


def pytorch(**options):
    return lambda groups, table: [torch.optim.Adafactor(groups, eps=(1e-30, 1e-3), **options)]


def published(eps, beta1=None, scale_parameter=True, clip_threshold=1.0, beta2_decay=-0.8):
    """Algorithms 4 and 5 of Shazeer and Stern 2018, with the momentum of mesh_tensorflow/optimize.py."""

    def rms(x):
        return torch.sqrt(torch.mean(x * x))

    def update(p, g, state, step, lr, weight_decay):
        beta2 = 1 - step**beta2_decay
        squares = g * g + eps[0]
        if p.dim() < 2:
            v = beta2 * state.get("v", 0) + (1 - beta2) * squares
            state["v"] = v
        else:
            r = beta2 * state.get("r", 0) + (1 - beta2) * squares.mean(-1, keepdim=True)
            c = beta2 * state.get("c", 0) + (1 - beta2) * squares.mean(-2, keepdim=True)
            state["r"], state["c"] = r, c
            v = r * c / r.mean(-2, keepdim=True)
        u = g / torch.sqrt(v)
        u = u / max(1.0, (rms(u) / clip_threshold).item())
        u = u * lr * (max(eps[1], rms(p).item()) if scale_parameter else 1.0)
        if beta1 is not None:
            u = beta1 * state.get("m", 0) + (1 - beta1) * u
            state["m"] = u
        return p * (1 - lr * weight_decay) - u

    return lambda groups, table: [golden_problem.Published(groups, update)]


if __name__ == "__main__":
    golden_problem.write(
        "adafactor",
        [
            ("Adafactor", 0.02, pytorch()),
            ("AdafactorClipped", 0.01, pytorch(d=1.1, beta2_decay=-0.6)),
            ("AdafactorMomentum", 0.01, published((1e-4, 1e-2), beta1=0.9, clip_threshold=0.5)),
            ("AdafactorUnscaled", 0.01, published((1e-30, 1e-3), scale_parameter=False)),
        ],
    )
