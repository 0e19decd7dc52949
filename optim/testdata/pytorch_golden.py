# SPDX-License-Identifier: Apache-2.0
"""Writes pytorch_golden.h: parameters after 20 steps of PyTorch's optimizers, in float64.

    python3 optim/testdata/pytorch_golden.py > optim/testdata/pytorch_golden.h   # needs torch

Element i starts at cos(0.9 i); its gradient in step s (from 1) is 0.1 (i + 1) sin(1.3 i + 0.7 s).
"""

import math

import torch

SIZE = 5
STEPS = 20
CASES = [
    ("Sgd", lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1)),
    ("SgdMomentum", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1)),
    ("SgdNesterov", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)),
    ("Adam", lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("AdamW", lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("AdamWClipped", lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
]


def run(name, make):
    w = torch.tensor([math.cos(0.9 * i) for i in range(SIZE)], dtype=torch.float64)
    w.requires_grad_(True)
    optimizer = make([w])
    for step in range(1, STEPS + 1):
        w.grad = torch.tensor(
            [0.1 * (i + 1) * math.sin(1.3 * i + 0.7 * step) for i in range(SIZE)], dtype=torch.float64
        )
        if name.endswith("Clipped"):
            torch.nn.utils.clip_grad_norm_([w], 0.25 + 0.02 * step)
        optimizer.step()
    return w.tolist()


def main():
    print(f"// By testdata/pytorch_golden.py with PyTorch {torch.__version__.split('+')[0]}.")
    print("#ifndef TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_")
    print("#define TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_\n")
    print("#include <vector>\n")
    print("namespace tessera::optim {\n")
    for name, make in CASES:
        values = ", ".join(repr(v) for v in run(name, make))
        print(f"inline const std::vector<double> k{name}Golden = {{{values}}};")
    print("\n}  // namespace tessera::optim\n")
    print("#endif  // TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_")


if __name__ == "__main__":
    main()
