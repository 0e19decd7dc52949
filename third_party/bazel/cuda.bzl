# SPDX-License-Identifier: Apache-2.0
"""The CUDA toolkit with NCCL and cuDNN, where CUDA_HOME (/usr/local/cuda) says, and how kernels are compiled.

    bazel build --config=cuda //tools:tessera
    CUDA_HOME=/opt/cuda bazel build --config=cuda //tools:tessera
    bazel build --config=cuda_emulation //tools:tessera     # kernels on the CPU (core/cuda/testing/emulation)

    load("//third_party/bazel:cuda.bzl", "tessera_cuda_library")

    tessera_cuda_library(
        name = "softmax_cuda",
        srcs = ["softmax_cuda.cu"],
        deps = [":softmax_kernel", "//core/cuda:kernels"],
    )

Without --config=cuda such a library is empty, and neither nvcc nor the toolkit is looked at. With
--config=cuda_emulation the host's compiler takes the kernels, against the toolkit's headers.
"""

load("//third_party/bazel:link_only.bzl", "link_only")
load("//third_party/bazel:tessera.bzl", "library_visibility", "tessera_library")

# --config=cuda_emulation, --config=cuda
_WITH_EMULATION = str(Label("//third_party:with_cuda_emulation"))
_WITH_CUDA = str(Label("//third_party:with_cuda"))

# What kernels are compiled for: sm_90a has Hopper's own instructions, sm_80 runs on every GPU since
# Ampere of compute capability 8.x.
_ARCHITECTURES = ["80", "90a"]

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "--expt-relaxed-constexpr",
    "-Werror=all-warnings",
    # The host compiler's: nvcc's own generated code is not free of the other warnings.
    "-Xcompiler=-fPIC,-Wall,-Wno-restrict",
] + [
    "-gencode=arch=compute_%s,code=sm_%s" % (architecture, architecture)
    for architecture in _ARCHITECTURES
]

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/nccl_device/**",
    ]),
    includes = ["include"],
)

# Linked in; it loads the driver itself when it is first asked for something.
cc_library(
    name = "runtime",
    srcs = ["lib64/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)

exports_files(["nvcc"])
"""

def _cuda_toolkit_impl(context):
    home = context.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not context.path(home + "/include/cuda_runtime_api.h").exists:
        fail("no CUDA toolkit in %s; CUDA_HOME names another folder" % home)
    for folder in ["include", "lib64"]:
        context.symlink(home + "/" + folder, folder)
    for header in ["nccl.h", "cudnn_graph.h"]:
        if not context.path(home + "/include/" + header).exists:
            fail("no %s in %s/include; it must lie in the toolkit" % (header, home))
    if not context.path(home + "/bin/nvcc").exists:
        fail("no nvcc in %s/bin; CUDA_HOME names another folder" % home)

    # nvcc finds its toolkit from the path it is called by.
    context.file("nvcc", "#!/bin/sh\nexec '%s/bin/nvcc' \"$@\"\n" % home, executable = True)
    context.file("BUILD.bazel", _BUILD)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
)

def _cuda_objects_impl(context):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in context.attr.deps],
    ).compilation_context
    flags = []
    for folder in compilation.includes.to_list() + compilation.quote_includes.to_list():
        flags.append("-I" + folder)
    for folder in compilation.system_includes.to_list():
        flags += ["-isystem", folder]
    for define in compilation.defines.to_list():
        flags.append("-D" + define)
    objects = []
    for source in context.files.srcs:
        object = context.actions.declare_file(
            "_objs/%s/%s.pic.o" % (context.label.name, source.basename[:-len(".cu")]),
        )
        context.actions.run(
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s for the GPU" % source.short_path,
            executable = context.executable._nvcc,
            arguments = _NVCC_FLAGS + context.attr.copts + flags +
                        ["-c", source.path, "-o", object.path],
            inputs = depset(
                context.files.srcs + context.files.hdrs,
                transitive = [compilation.headers],
            ),
            outputs = [object],
            use_default_shell_env = True,
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_nvcc": attr.label(
            default = "@system_cuda//:nvcc",
            executable = True,
            cfg = "exec",
            allow_single_file = True,
        ),
    },
)

# Kernels read memory as the types that fill an access; the pragmas are nvcc's.
_EMULATION_FLAGS = [
    "-fno-strict-aliasing",
    "-Wno-unknown-pragmas",
]

def _emulated_sources(name, srcs):
    """C++ files that include the kernels `srcs`, with what nvcc would have given them."""
    package = native.package_name()
    outs = []
    for src in srcs:
        out = "%s_emulated/%s.cc" % (name, src[:-len(".cu")])
        native.genrule(
            name = out.replace("/", "_").replace(".", "_"),
            outs = [out],
            cmd = "printf '#include \"%s\"\\n#include \"%s\"\\n' >$@" % (
                "core/cuda/testing/emulation/kernel_language.h",
                package + "/" + src,
            ),
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )
        outs.append(out)
    return outs

def tessera_cuda_library(
        name,
        srcs,
        hdrs = [],
        host_srcs = [],
        deps = [],
        copts = [],
        emulations = {},
        shows_headers = False,
        visibility = None):
    """Kernels (`srcs`, .cu) compiled by nvcc, and `host_srcs` compiled like any C++. Linked whole.

    Sources may include what `deps` offer, and `hdrs`. Whoever depends on it compiles with the same
    files in all configurations (link_only.bzl), unless it `shows_headers`: other kernels, above it,
    need those of `deps`. Empty without --config=cuda. `emulations` says which C++ source stands for a kernel source in the emulation;
    the others stand for themselves.
    """

    # "manual": `//...` must build on a machine without CUDA.
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        copts = copts,
        tags = ["manual"],
        visibility = ["//visibility:private"],
        deps = deps + ["@system_cuda//:headers"],
    )
    emulated = [src for src in srcs if src not in emulations]
    compiled = name if shows_headers else name + "_compiled"
    tessera_library(
        name = compiled,
        srcs = select({
            _WITH_EMULATION: _emulated_sources(name, emulated) +
                             emulations.values() + host_srcs,
            _WITH_CUDA: [":%s_objects" % name] + host_srcs,
            "//conditions:default": [],
        }),
        textual_hdrs = hdrs + emulated,
        copts = select({
            _WITH_EMULATION: _EMULATION_FLAGS,
            "//conditions:default": [],
        }),
        alwayslink = True,
        deps = select({
            _WITH_CUDA: deps + [Label("//core/cuda:cudart")],
            "//conditions:default": [],
        }),
        visibility = visibility if shows_headers else ["//visibility:private"],
    )
    if shows_headers:
        return
    tessera_library(
        name = name + "_headers",
        textual_hdrs = hdrs + emulated,
        visibility = ["//visibility:private"],
    )
    link_only(
        name = name,
        headers = [":%s_headers" % name],
        visibility = library_visibility(visibility),
        deps = [":" + compiled],
    )
