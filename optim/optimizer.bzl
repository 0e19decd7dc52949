# SPDX-License-Identifier: Apache-2.0
"""An optimizer in a package of its own: tessera_op (third_party/bazel/op.bzl) with what every
optimizer needs.

    load("//optim:optimizer.bzl", "tessera_optimizer")

    tessera_optimizer(name = "lion")
"""

load("//third_party/bazel:op.bzl", "tessera_op")

def tessera_optimizer(name, deps = []):
    tessera_op(
        name = name,
        isa_deps = ["//optim:update_simd"],
        cuda_deps = ["//optim:update_cuda"],
        deps = deps + ["//optim:optimizer"],
        test_deps = ["//optim/testing"],
    )
