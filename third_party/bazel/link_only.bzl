# SPDX-License-Identifier: Apache-2.0
"""A library that is linked, and whose headers and dependencies stay inside.

    load("//third_party/bazel:link_only.bzl", "link_only")

    link_only(
        name = "softmax_cuda",
        headers = [":softmax_cuda_headers"],
        deps = [":softmax_cuda_compiled"],
    )

Whoever depends on it compiles with `headers` alone. So what a configuration adds to a program (kernels for
GPUs) does not touch the compilation of all that is above: its objects are the same ones, and come from
the cache.
"""

def _link_only_impl(context):
    linked = [
        CcInfo(linking_context = dep[CcInfo].linking_context)
        for dep in context.attr.deps
    ]
    seen = [
        CcInfo(compilation_context = header[CcInfo].compilation_context)
        for header in context.attr.headers
    ]
    return [cc_common.merge_cc_infos(cc_infos = linked + seen)]

link_only = rule(
    implementation = _link_only_impl,
    attrs = {
        "headers": attr.label_list(providers = [CcInfo]),
        "deps": attr.label_list(providers = [CcInfo]),
    },
    provides = [CcInfo],
)
