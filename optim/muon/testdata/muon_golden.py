# SPDX-License-Identifier: Apache-2.0
"""Writes muon_golden.h: torch.optim.Muon with its iteration in float64, AdamW for what is no matrix.

    python3 optim/muon/testdata/muon_golden.py > optim/muon/testdata/muon_golden.h   # needs torch
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "testdata"))
import golden_problem

import inspect
import textwrap

from torch.optim import _muon

# The iteration as PyTorch has it, but for its dtype.
source = inspect.getsource(_muon._zeropower_via_newtonschulz)
assert source.count("torch.bfloat16") == 1
exec(textwrap.dedent(source.replace("torch.bfloat16", "torch.float64")), _muon.__dict__)


def muon(adam=None, **options):
    def make(groups, table):
        matrices, others = [], []
        for group in groups:
            is_matrix = [p.dim() == 2 and p is not table for p in group["params"]]
            matrices.append({**group, "params": [p for p, m in zip(group["params"], is_matrix) if m]})
            others.append({**group, "params": [p for p, m in zip(group["params"], is_matrix) if not m]})
        return [torch.optim.Muon(matrices, **options), torch.optim.AdamW(others, **(adam or {}))]

    return make


if __name__ == "__main__":
    golden_problem.write(
        "muon",
        [
            ("Muon", 0.01, muon()),
            (
                "MuonPlain",
                0.003,
                muon(
                    {"betas": (0.8, 0.95), "eps": 1e-6},
                    momentum=0.9,
                    nesterov=False,
                    ns_steps=3,
                    ns_coefficients=(2.0, -1.5, 0.5),
                    adjust_lr_fn="match_rms_adamw",
                ),
            ),
        ],
    )
