# SPDX-License-Identifier: Apache-2.0
"""An optimizer in a package of its own.

    load("//optim:optimizer.bzl", "tessera_optimizer")

    tessera_optimizer(name = "lion")

Sources are named after it: lion.h and lion.cc, the formula lion_update.h, lion_kernel.h, the
instantiations lion_isa.cc and lion_cuda.cu, and lion_test.cc with testdata/*.h. Others are taken
where they exist: lion_chunks.h, lion_cpu.cc.
"""

load("//third_party/bazel:cuda.bzl", "tessera_cuda_library")
load(
    "//third_party/bazel:tessera.bzl",
    "tessera_isa_library",
    "tessera_library",
    "tessera_test",
)

def tessera_optimizer(name, deps = []):
    """See above. `deps` are those of the host's code beside what every optimizer needs."""
    formula = native.glob([name + "_update.h", name + "_chunks.h"], allow_empty = True)
    tessera_isa_library(
        name = name + "_isa",
        srcs = [name + "_isa.cc"],
        hdrs = formula,
        visibility = ["//visibility:private"],
        deps = ["//optim:update_simd"],
    )
    tessera_cuda_library(
        name = name + "_cuda",
        srcs = [name + "_cuda.cu"],
        hdrs = [name + "_kernel.h"] + formula,
        deps = [
            "//core/cuda:kernels",
            "//optim:update_cuda",
        ],
    )
    tessera_library(
        name = name,
        srcs = [name + ".cc"] + native.glob([name + "_cpu.cc"], allow_empty = True),
        hdrs = [name + ".h", name + "_kernel.h"],
        # It registers itself, as its kernels do.
        alwayslink = True,
        deps = deps + [
            ":%s_cuda" % name,
            ":%s_isa" % name,
            "//optim:optimizer",
        ],
    )
    if native.glob([name + "_test.cc"], allow_empty = True):
        tessera_test(
            name = name + "_test",
            srcs = [name + "_test.cc"] + native.glob(["testdata/*.h"], allow_empty = True),
            deps = [
                ":" + name,
                "//optim/testing",
            ],
        )
