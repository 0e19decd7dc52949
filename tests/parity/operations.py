# SPDX-License-Identifier: Apache-2.0
"""Operations and their gradients against PyTorch, on odd shapes.

    pip install torch safetensors
    bazel build -c opt //tests/parity:operations
    python tests/parity/operations.py [--program bazel-bin/tests/parity/operations]

The program computes in float32, PyTorch in float64 on the same numbers. An operation is named here
and in operations.cc, with the same dims and numbers.
"""
import argparse
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parity import TOLERANCE, Report, relative_error, run

ODD = [(3, 7), (5, 3, 2), (1, 37), (2, 17, 1)]


def normal(*shape):
    return torch.randn(shape)


def positive(*shape):
    return 0.2 + torch.randn(shape).abs()


def few(*shape):
    """Many equal elements, to see which of them comes first."""
    return torch.randint(0, 4, shape).float()


def of(*makers):
    """Inputs of every odd shape, one by each maker."""
    return [lambda shape=shape: [make(*shape) for make in makers] for shape in ODD]


def sized(*shapes):
    return [lambda: [normal(*shape) for shape in shapes]]


def broadcast():
    return [lambda: [normal(3, 1, 5), positive(7, 1)], lambda: [normal(5), positive(3, 5)]]


def einsum(equation):
    return lambda *operands: [torch.einsum(equation, *operands)]


def where(x):
    return [torch.where(x > 0, x, -0.5), torch.where(x > 0, 2.0, x)]


def reductions(loss, **options):
    return lambda *pair: [loss(*pair, reduction=r, **options) for r in ("none", "sum", "mean")]


def divergences(log_target):
    kinds = ("none", "sum", "mean", "batchmean")
    return lambda x, t: [F.kl_div(x, t, reduction=r, log_target=log_target) for r in kinds]


def column_weights(x):
    return 0.5 * (1 + torch.arange(x.shape[-1], dtype=x.dtype))


def weighted_bce(x, t, reduction):
    w = column_weights(x)
    return F.binary_cross_entropy_with_logits(x, t, weight=w, pos_weight=w, reduction=reduction)


def probabilities(*shape):
    return torch.rand(shape)


def classes():
    """Scores of classes, and one of them each."""
    return [lambda: [normal(7, 5), torch.randint(0, 5, (7,))],
            lambda: [normal(1, 37), torch.randint(3, 37, (1,))]]


def signs():
    return [lambda: [normal(5, 7), normal(5, 7), 2 * torch.randint(0, 2, (5,)) - 1]]


def recurrent(kind, states, layers=2, **options):
    """Two layers in two directions. Inputs: x, first states, parameters, and perhaps lengths."""
    def function(x, *rest):
        hidden = rest[0].shape[2]
        module = kind(x.shape[2], hidden, layers, bidirectional=True, batch_first=True, **options)
        names = [n for n, _ in module.double().named_parameters()]
        parameters = dict(zip(names, rest[states:]))
        lengths = rest[states + len(names):]
        first = rest[0] if states == 1 else tuple(rest[:2])
        steps = x.shape[1]
        if lengths:
            x = pack_padded_sequence(x, lengths[0], batch_first=True, enforce_sorted=False)
        y, last = torch.func.functional_call(module, parameters, (x, first))
        if lengths:
            y = pad_packed_sequence(y, batch_first=True, total_length=steps)[0]
        return [y, *(last if states == 2 else [last])]

    def make(batch, steps, inputs, hidden, lengths):
        module = kind(inputs, hidden, layers, bidirectional=True, batch_first=True, **options)
        given = [normal(batch, steps, inputs)]
        given += [normal(2 * layers, batch, hidden) for _ in range(states)]
        given += [p.detach().clone() for p in module.parameters()]
        return given + ([torch.tensor(lengths)] if lengths else [])

    return (function, [lambda: make(3, 5, 4, 7, None), lambda: make(1, 1, 2, 1, None),
                       lambda: make(2, 3, 5, 33, None), lambda: make(3, 5, 4, 7, [2, 5, 1]),
                       lambda: make(2, 4, 3, 17, [4, 4])])

def convolution(function, **options):
    return lambda x, weight, bias: [function(x, weight, bias, **options)]


def pictures(function, **options):
    return lambda x: [function(x, **options)]


PICTURES = sized((2, 3, 7, 9)) + sized((1, 2, 8, 5))

# By name: outputs, those without gradients last, and functions that make inputs.
OPERATIONS = {
    "operators": (lambda a, b: [-a * b + a / b - b], of(normal, positive) + broadcast()),
    "numbers": (lambda x: [(2 * x + 1) / 3 - (0.5 - x) + 1.5 / x], of(positive)),
    "sin": (lambda x: [x.sin()], of(normal) + of(lambda *s: 1e5 * normal(*s))),
    "cos": (lambda x: [x.cos()], of(normal) + of(lambda *s: 1e5 * normal(*s))),
    "expm1": (lambda x: [x.expm1()], of(normal) + of(lambda *s: 1e-4 * normal(*s))),
    "log1p": (lambda x: [x.log1p()], of(positive) + of(lambda *s: 1e-4 * normal(*s))),
    "normal_cdf": (lambda x: [torch.special.ndtr(x)], of(normal)),
    "pow": (lambda a, b: [a.pow(b)], of(positive, normal)),
    "pow_two": (lambda x: [x.pow(2)], of(normal)),
    "pow_three": (lambda x: [x.pow(3)], of(normal)),
    "pow_fraction": (lambda x: [x.pow(-1.3)], of(positive)),
    "clamp": (lambda x: [x.clamp(-0.5, 1)], of(normal)),
    "clamp_min": (lambda x: [x.clamp(min=0.25)], of(normal)),
    "where": (where, of(normal)),
    "max": (lambda x: list(x.max(1)), of(normal)),
    "min": (lambda x: list(x.min(1, keepdim=True)), of(normal)),
    "cumsum": (lambda x: [x.cumsum(1)], of(normal)),
    "sort": (lambda x: list(x.sort(dim=1, stable=True)), of(normal) + of(few)),
    "sort_descending": (lambda x: list(x.sort(dim=0, stable=True, descending=True)),
                        of(normal) + of(few)),
    "topk": (lambda x: list(x.topk(2, 1)), sized((3, 7)) + sized((2, 5, 3))),
    "stack": (lambda a, b: [torch.stack([a, b], 1)], of(normal, normal)),
    "chunk": (lambda x: list(x.chunk(3, 1)), of(normal)),
    "repeat": (lambda x: [x.repeat(2, 1, 3)], of(normal)),
    "repeat_interleave": (lambda x: [x.repeat_interleave(3, 1)], of(normal)),
    "flip": (lambda x: [x.flip(0, 1)], of(normal)),
    "roll": (lambda x: [x.roll(-2, 1)], of(normal)),
    "pad": (lambda x: [F.pad(x, (2, 1), value=-3)], sized((3, 7))),
    "one_hot": (lambda i: [F.one_hot(i, 5).float()],
                [lambda: [torch.randint(0, 5, (3, 7))]]),
    "einsum_matmul": (einsum("ij,jk->ik"), sized((3, 5), (5, 7))),
    "einsum_attention": (einsum("bhqd,bhkd->bhqk"), sized((2, 3, 5, 4), (2, 3, 7, 4))),
    "einsum_bilinear": (einsum("bi,oij,bj->bo"), sized((2, 3), (4, 3, 5), (2, 5))),
    "einsum_ellipsis": (einsum("...i,oi->...o"), sized((2, 3, 5), (7, 5))),
    "einsum_trace": (einsum("ii->"), sized((5, 5))),
    "einsum_outer": (einsum("i,j"), sized((3,), (5,))),
    "mse": (reductions(F.mse_loss), of(normal, normal)),
    "l1": (reductions(F.l1_loss), of(normal, normal)),
    "smooth_l1": (reductions(F.smooth_l1_loss, beta=0.5), of(normal, normal)),
    "huber": (reductions(F.huber_loss, delta=1.5), of(normal, normal)),
    "bce": (reductions(F.binary_cross_entropy_with_logits), of(normal, probabilities)),
    "bce_weights": (reductions(weighted_bce), of(normal, probabilities)),
    "kl": (divergences(False), of(normal, probabilities)),
    "kl_log_target": (divergences(True), of(normal, normal)),
    "nll": (reductions(F.nll_loss, ignore_index=2), classes()),
    "nll_weights": (lambda x, t: reductions(F.nll_loss, weight=column_weights(x))(x, t), classes()),
    "cross_entropy": (reductions(F.cross_entropy, ignore_index=2, label_smoothing=0.1), classes()),
    "cosine": (lambda a, b: [F.cosine_similarity(a, b, 1)], of(normal, normal)),
    "cosine_embedding": (lambda a, b, y: [F.cosine_embedding_loss(a, b, y, -0.3)], signs()),
    "lstm": recurrent(torch.nn.LSTM, 2),
    "gru": recurrent(torch.nn.GRU, 1),
    "rnn_tanh": recurrent(torch.nn.RNN, 1),
    "rnn_relu": recurrent(torch.nn.RNN, 1, nonlinearity="relu"),
    "conv1d": (convolution(F.conv1d, stride=2, padding=1, dilation=2),
               sized((2, 3, 17), (5, 3, 3), (5,))),
    "conv2d": (convolution(F.conv2d, padding=1),
               sized((2, 3, 7, 9), (5, 3, 3, 3), (5,)) +
               sized((3, 70, 13, 11), (20, 70, 3, 3), (20,)) +
               sized((2, 33, 5, 7), (9, 33, 1, 1), (9,))),
    "conv2d_strided": (convolution(F.conv2d, stride=(2, 3), padding=(1, 2)),
                       sized((2, 3, 9, 11), (5, 3, 3, 5), (5,)) +
                       sized((2, 3, 60, 61), (9, 3, 7, 7), (9,))),
    "conv2d_dilated": (convolution(F.conv2d, dilation=(2, 1), groups=2),
                       sized((2, 4, 9, 8), (6, 2, 3, 2), (6,))),
    "conv2d_depthwise": (convolution(F.conv2d, stride=2, padding=1, groups=3),
                         sized((2, 3, 9, 35), (3, 1, 3, 3), (3,))),
    "conv_transpose2d": (convolution(F.conv_transpose2d, stride=(2, 3), padding=1,
                                     output_padding=(1, 0)),
                         sized((2, 3, 5, 4), (3, 4, 3, 4), (4,))),
    "max_pool2d": (pictures(F.max_pool2d, kernel_size=3, stride=2, padding=1), PICTURES),
    "max_pool2d_ceil": (pictures(F.max_pool2d, kernel_size=2, stride=(3, 2), ceil_mode=True),
                        PICTURES),
    "max_pool1d": (pictures(F.max_pool1d, kernel_size=3), sized((2, 3, 11))),
    "avg_pool2d": (pictures(F.avg_pool2d, kernel_size=(3, 2), padding=1, ceil_mode=True),
                   PICTURES),
    "avg_pool2d_inside": (pictures(F.avg_pool2d, kernel_size=3, stride=2, padding=1,
                                   ceil_mode=True, count_include_pad=False), PICTURES),
    "avg_pool1d": (pictures(F.avg_pool1d, kernel_size=2), sized((2, 3, 11))),
    "adaptive_avg_pool2d": (pictures(F.adaptive_avg_pool2d, output_size=(3, 2)), PICTURES),
    "interpolate_nearest": (pictures(F.interpolate, size=(11, 4)), PICTURES),
    "interpolate_bilinear": (pictures(F.interpolate, size=(11, 4), mode="bilinear",
                                      align_corners=False), PICTURES),
    "interpolate_corners": (pictures(F.interpolate, size=(11, 4), mode="bilinear",
                                     align_corners=True), PICTURES),
    "batch_norm": (lambda x, w, b: [F.batch_norm(x, None, None, w, b, training=True)],
                   sized((3, 4, 5, 7), (4,), (4,)) + sized((9, 2), (2,), (2,))),
    "group_norm": (lambda x, w, b: [F.group_norm(x, 2, w, b)],
                   sized((3, 4, 5, 7), (4,), (4,)) + sized((2, 6, 37), (6,), (6,))),
}


def reference(function, inputs, given, name):
    """Outputs and gradients in float64; inputs and seeds go to `given`."""
    for i, x in enumerate(inputs):
        given[f"{name}/x{i}"] = x
    leaves = [x.double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = function(*leaves)
    want = {f"{name}/y{i}": y.detach() for i, y in enumerate(outputs)}
    roots = [y for y in outputs if y.requires_grad]
    for i, y in enumerate(roots):
        given[f"{name}/s{i}"] = torch.randn(y.shape)
    seeds = [given[f"{name}/s{i}"].double() for i in range(len(roots))]
    if roots:
        torch.autograd.backward(roots, seeds)
    for i, x in enumerate(leaves):
        if x.is_floating_point() and x.grad is not None:
            want[f"{name}/g{i}"] = x.grad
    return want


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="bazel-bin/tests/parity/operations")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    given, want = {}, {}
    for operation, (function, makers) in OPERATIONS.items():
        for case, make in enumerate(makers):
            want.update(reference(function, make(), given, f"{operation}@{case}"))
    with tempfile.TemporaryDirectory() as work:
        files = [os.path.join(work, n) for n in ("in.safetensors", "out.safetensors")]
        save_file({n: t.contiguous() for n, t in given.items()}, files[0])
        run(arguments.program, *files)
        got = load_file(files[1])
    report = Report()
    report("the same outputs and gradients", set(got) == set(want),
           str(sorted(set(got) ^ set(want))[:5]))
    for operation in OPERATIONS:
        names = [n for n in want if n.split("@")[0] == operation and n in got]
        shapes = all(got[n].shape == want[n].shape for n in names)
        report(f"{operation} shapes", shapes)
        for kind, letters in (("outputs", "y"), ("gradients", "g")):
            errors = [(relative_error(got[n], want[n], 1.0), n) for n in names
                      if shapes and n.split("/")[1][0] in letters]
            if errors:
                report.error(f"{operation} {kind}", max(errors), TOLERANCE)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
