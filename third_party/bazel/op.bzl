# SPDX-License-Identifier: Apache-2.0
"""An operation, or an optimizer, in a package of its own, and its test.

    load("//third_party/bazel:op.bzl", "tessera_op")

    tessera_op(
        name = "swiglu",
        deps = ["//autograd"],
        test_deps = ["//ops/testing"],
    )

The names of sources say how they are compiled, and none but the first must exist:

    *.cc            once, into the library `name`, with every *.h
    *_isa.cc        once per instruction set, with *_rows.h, *_chunks.h, *_formulas.h and *_update.h
    *_cuda.cu       for the GPU
    <name>_test.cc  the test, which tools/gpu_check runs as well
"""

load("//third_party/bazel:cuda.bzl", "tessera_cuda_library")
load(
    "//third_party/bazel:tessera.bzl",
    "tessera_isa_library",
    "tessera_library",
    "tessera_test",
)

def _sources(patterns, exclude = []):
    return native.glob(patterns, exclude = exclude, allow_empty = True)

def tessera_op(name, deps = [], isa_deps = [], cuda_deps = [], test_deps = [], level_for_size = "-O2"):
    """See above. The three kinds of code have `deps` of their own; `level_for_size` is the vector
    code's (tessera_isa_library)."""
    headers = _sources(["*.h"])
    isa = _sources(["*_isa.cc"])
    kernels = _sources(["*_cuda.cu"])
    test = _sources([name + "_test.cc"])
    parts = []
    if isa:
        tessera_isa_library(
            name = name + "_isa",
            srcs = isa,
            hdrs = _sources(["*_rows.h", "*_chunks.h", "*_formulas.h", "*_update.h"]),
            level_for_size = level_for_size,
            visibility = ["//visibility:private"],
            deps = isa_deps + ["//core/cpu:simd"],
        )
        parts += [":%s_isa" % name, "//core/cpu:rows"]
    if kernels:
        tessera_cuda_library(
            name = name + "_cuda",
            srcs = kernels,
            hdrs = headers,
            deps = cuda_deps + ["//core/cpu:rows", "//core/cuda:kernels"],
        )
        parts.append(":%s_cuda" % name)
    tessera_library(
        name = name,
        srcs = _sources(["*.cc"], exclude = ["*_isa.cc", "*_test.cc", "*_benchmark.cc"]),
        hdrs = headers,
        # Kernels, and optimizers, register themselves.
        alwayslink = True,
        deps = deps + parts,
    )
    if test:
        tessera_test(
            name = name + "_test",
            srcs = test + _sources(["testdata/*.h"]),
            deps = test_deps + [":" + name],
        )
        native.exports_files(
            test,
            visibility = ["//tools/gpu_check:__pkg__"],
        )
