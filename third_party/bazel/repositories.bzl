# SPDX-License-Identifier: Apache-2.0
"""What a workspace declares that builds Tessera, or builds on it.

    workspace(name = "mine")

    local_repository(
        name = "tessera",
        path = "/home/me/tessera",
    )

    load("@tessera//third_party/bazel:repositories.bzl", "tessera_repositories")

    tessera_repositories()

Targets are then `@tessera//nn`, `@tessera//train` and so on, and third_party/bazel/tessera.bzl has the
rules (docs/packages.md#bazel). Everything comes from the distribution's packages (packages.txt); with
Debian 12's Bazel nothing is downloaded. What the workspace has declared before stays as it is.
"""

load("//third_party/bazel:cuda.bzl", "cuda_toolkit")

def _folder_repository_impl(context):
    folder = context.path(context.attr.workspace_file).dirname
    for entry in folder.readdir():
        context.symlink(entry, entry.basename)

# A repository that is a folder of this one, wherever this one lies.
_folder_repository = repository_rule(
    implementation = _folder_repository_impl,
    attrs = {"workspace_file": attr.label(allow_single_file = True, mandatory = True)},
    local = True,
)

def _openmpi_headers_impl(context):
    machine = context.execute(["uname", "-m"]).stdout.strip()
    headers = context.path("/usr/lib/%s-linux-gnu/openmpi/include" % machine)
    if not headers.exists:
        fail("%s is missing; install libopenmpi-dev (tools/install_packages)" % headers)
    context.file("WORKSPACE")
    context.symlink(context.attr.build_file, "BUILD.bazel")
    context.symlink(headers, "include")

# Debian has them in a folder for each kind of processor.
_openmpi_headers = repository_rule(
    implementation = _openmpi_headers_impl,
    attrs = {"build_file": attr.label(allow_single_file = True, mandatory = True)},
    local = True,
)

def _declare(rule, name, **kwargs):
    if native.existing_rule(name) == None:
        rule(name = name, **kwargs)

def _bazel_repositories():
    """What Bazel's own set-up asks for by name and would fetch. Local ones answer in their place:
    Debian's packages bazel-rules-java and bazel-rules-proto, Bazel's native C++ rules, and a coverage
    tool without content."""
    _declare(native.local_repository, "rules_java", path = "/usr/share/bazel/rules/java")
    _declare(native.local_repository, "rules_proto", path = "/usr/share/bazel/rules/proto")
    _declare(
        _folder_repository,
        "rules_cc",
        workspace_file = Label("//third_party/bazel/rules_cc:WORKSPACE"),
    )
    _declare(
        _folder_repository,
        "remote_coverage_tools",
        workspace_file = Label("//third_party/bazel/remote_coverage_tools:WORKSPACE"),
    )

def tessera_repositories():
    """Declares the repositories that Tessera's targets ask for."""

    # Debian 12's Bazel, which knows no version of its own; others know where their rules are.
    if not native.bazel_version:
        _bazel_repositories()

    # Libraries whose headers lie outside the compiler's own search path.
    _declare(
        native.new_local_repository,
        "system_eigen",
        build_file = str(Label("//third_party:eigen.BUILD")),
        path = "/usr/include/eigen3",
    )
    _declare(
        native.new_local_repository,
        "system_libxml2",
        build_file = str(Label("//third_party:libxml2.BUILD")),
        path = "/usr/include/libxml2",
    )
    _declare(
        _openmpi_headers,
        "system_openmpi",
        build_file = Label("//third_party:openmpi.BUILD"),
    )
    _declare(
        native.new_local_repository,
        "system_googletest",
        build_file = str(Label("//third_party:googletest.BUILD")),
        path = "/usr/src/googletest",
    )
    _declare(cuda_toolkit, "system_cuda")
