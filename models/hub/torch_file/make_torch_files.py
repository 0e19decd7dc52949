# SPDX-License-Identifier: Apache-2.0
"""Small files that torch.save wrote, for torch_file_test.cc, and what they hold.

    pip install torch numpy safetensors
    python models/hub/torch_file/make_torch_files.py
"""
import argparse
import collections
import pathlib

import numpy
import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent / "testdata"


def state_dict():
    w = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 8
    cube = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
    return collections.OrderedDict(
        w=w, tied=w, transposed=w.t(), slice=w[1:, ::2], tail=w[2], parameter=torch.nn.Parameter(w + 1),
        permuted=cube.permute(2, 0, 1), half=w.half(), bfloat16=w.bfloat16(), scalar=torch.tensor(3.5),
        empty=torch.zeros(0, 3), long=torch.arange(-2, 3), int=torch.arange(3, dtype=torch.int32),
        byte=torch.arange(5, dtype=torch.uint8), bool=torch.tensor([True, False]),
        short=torch.arange(3, dtype=torch.int16))


def main():
    FOLDER.mkdir(exist_ok=True)
    tensors = state_dict()
    tensors._metadata = {"": {"version": 1}}
    torch.save(tensors, FOLDER / "archive.bin")
    torch.save(tensors, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    torch.save(tensors, FOLDER / "protocol4.bin", pickle_protocol=4)
    save_file({n: t.detach().contiguous().clone() for n, t in tensors.items()},
              FOLDER / "expected.safetensors")
    layer = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        layer.weight.copy_(torch.arange(6.0).reshape(3, 2))
        layer.bias.fill_(7)
    torch.save({
        "args": argparse.Namespace(num_layers=2, eps=1e-5, name="small", fp16=True, dtype=torch.float16,
                                   none=None, data=["a", "b"]),
        "checkpoint_version": 3.0, "iteration": 12,
        "model": {"language_model": {"embedding": {"word": {"weight": layer.weight.data}},
                                     "bias": layer.bias.data}},
        "optimizer": optimizer.state_dict(),
        "rng_state": [{"np": numpy.random.RandomState(1).get_state(), "torch": torch.get_rng_state()[:8]}],
        "states": collections.defaultdict(dict, {"a": {}}),
    }, FOLDER / "training.pt")
    torch.save({"state_dict": {"module.a": torch.ones(2), "module.b.c": torch.zeros(1)}, "epoch": 3},
               FOLDER / "wrapped.pt")
    print(sum(f.stat().st_size for f in FOLDER.iterdir()), "bytes")


if __name__ == "__main__":
    main()
