"""The CUDA toolkit with NCCL, where CUDA_HOME (/usr/local/cuda) says.

    bazel build --config=cuda //tools:tessera
    CUDA_HOME=/opt/cuda bazel build --config=cuda //tools:tessera

Looked at only when a target that needs CUDA is built.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

cc_library(
    name = "runtime",
    srcs = glob(["lib64/libcudart.so.*"]),
    linkstatic = False,
    deps = [":headers"],
)

cc_library(
    name = "nccl",
    srcs = glob(["lib64/libnccl.so.*"]),
    linkstatic = False,
    deps = [":headers", ":runtime"],
)
"""

def _cuda_toolkit_impl(context):
    home = context.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not context.path(home + "/include/cuda_runtime_api.h").exists:
        fail("no CUDA toolkit in %s; CUDA_HOME names another folder" % home)
    for folder in ["include", "lib64"]:
        context.symlink(home + "/" + folder, folder)
    if not context.path(home + "/include/nccl.h").exists:
        fail("no nccl.h in %s/include; NCCL's headers and libraries must lie in the toolkit" % home)
    context.file("BUILD.bazel", _BUILD)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
