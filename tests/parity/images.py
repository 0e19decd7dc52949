# SPDX-License-Identifier: Apache-2.0
"""Decoding, resizing and preprocessing of pictures against PIL and transformers.

    pip install 'pillow>=13' numpy torch 'transformers<5' safetensors
    python tests/parity/images.py write
        writes data/image/testdata/: small pictures, and what PIL and ViTImageProcessor make of them;
        image_test.cc reads them
    python tests/parity/images.py check PICTURE... [--program BINARY]
        compares pixel_values of photographs, for several configurations
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import ViTImageProcessor

FOLDER = pathlib.Path(__file__).parents[2] / "data/image/testdata"
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
SIZES = [(16, 16), (53, 40), (29, 11), (7, 37), (3, 2), (9, 30), (20, 45)]  # height, width
CONFIGS = {
    "plain": dict(size={"height": 24, "width": 20}),
    "bicubic": dict(size=16, resample=3, image_mean=[0.485, 0.456, 0.406],
                    image_std=[0.229, 0.224, 0.225]),
    "unscaled": dict(size={"height": 40, "width": 30}, do_rescale=False, do_normalize=False),
}


def picture(height, width):
    """Smooth colours, an edge and some noise."""
    random = numpy.random.default_rng(3)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 120 * numpy.sin(x / (3 + c) + y / (5 - c)) for c in range(3)]
    pixels = numpy.stack(planes, -1) + random.normal(0, 12, (height, width, 3))
    pixels[height // 3:height // 2, width // 4:] = (250, 10, 90)
    return numpy.clip(pixels, 0, 255).astype(numpy.uint8)


def tensor(image):
    return torch.from_numpy(numpy.atleast_3d(numpy.array(image)).copy())


def write(_):
    FOLDER.mkdir(parents=True, exist_ok=True)
    rgb = Image.fromarray(picture(29, 37))
    grey = rgb.convert("L")
    rgba = rgb.copy()
    rgba.putalpha(grey)
    deep = numpy.array(grey).astype(numpy.uint16) * 257
    files = {
        "rgb.jpg": (rgb, dict(quality=85)),
        "progressive.jpg": (rgb, dict(quality=70, progressive=True, subsampling=0)),
        "grey.jpg": (grey, dict(quality=90)),
        "cmyk.jpg": (rgb.convert("CMYK"), dict(quality=95)),
        "rgb.png": (rgb, {}), "rgba.png": (rgba, {}), "grey.png": (grey, {}),
        "palette.png": (rgb.quantize(13), dict(transparency=3)),
        "bits.png": (grey.convert("1"), {}),
        "deep.png": (Image.fromarray(deep), {}),
    }
    out = {}
    for name, (image, options) in files.items():
        image.save(FOLDER / name, **options)
        loaded = Image.open(FOLDER / name)
        if name == "deep.png":
            loaded = Image.fromarray((numpy.array(loaded) >> 8).astype(numpy.uint8))
        elif name in ("bits.png",):
            loaded = loaded.convert("L")
        elif loaded.mode not in ("RGB", "L"):
            loaded = loaded.convert("RGB")
        out[f"decoded.{name}"] = tensor(loaded)
    out["grey"] = tensor(grey)
    for name, number in FILTERS.items():
        for height, width in SIZES:
            for kind, image in (("rgb", rgb), ("grey", grey)):
                out[f"resized.{kind}.{number}.{height}x{width}"] = tensor(
                    image.resize((width, height), number))
    for name, fields in CONFIGS.items():
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        processor = ViTImageProcessor(**fields)
        processor.save_pretrained(folder)
        out[f"processed.{name}"] = torch.from_numpy(
            processor(numpy.array(rgb), return_tensors="np")["pixel_values"][0].astype(numpy.float32))
    save_file({n: t.contiguous() for n, t in out.items()}, FOLDER / "goldens.safetensors")
    print(sum(f.stat().st_size for f in FOLDER.rglob("*") if f.is_file()), "bytes")


def check(args):
    failed = 0
    for fields in (dict(size=224), dict(size=384, resample=3), dict(size={"height": 96, "width": 160})):
        with tempfile.TemporaryDirectory() as folder:
            processor = ViTImageProcessor(**fields)
            processor.save_pretrained(folder)
            out = str(pathlib.Path(folder) / "out.safetensors")
            subprocess.run([args.program, folder, out, *args.pictures], check=True)
            got = load_file(out)["pixel_values"]
            worst = 0.0
            for i, path in enumerate(args.pictures):
                want = processor(Image.open(path).convert("RGB"), return_tensors="pt")["pixel_values"][0]
                worst = max(worst, (got[i] - want.float()).abs().max().item())
            failed += worst != 0
            print(f"{'FAIL' if worst else 'ok  '} {fields}: {len(args.pictures)} pictures, "
                  f"greatest difference {worst:.2e}")
    return failed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("pictures", nargs="*")
    parser.add_argument("--program", default="bazel-bin/tests/parity/preprocess_image")
    args = parser.parse_args()
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
