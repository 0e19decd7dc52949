# SPDX-License-Identifier: Apache-2.0
"""The targets that a target is made of, as a file that a test reads.

    load("//third_party/bazel:dependency_list.bzl", "dependency_list")

    dependency_list(
        name = "inference_dependencies",
        target = "//runtime:inference",
    )

writes inference_dependencies.txt: a label a line, sorted, under the configuration that is built.
"""

_Labels = provider(fields = ["labels"])

def _labels_impl(target, context):
    label = target.label
    repository = "@" + label.workspace_name if label.workspace_name else ""
    return [_Labels(labels = depset(
        ["%s//%s:%s" % (repository, label.package, label.name)],
        transitive = [
            dep[_Labels].labels
            for dep in getattr(context.rule.attr, "deps", [])
        ],
    ))]

_labels = aspect(
    implementation = _labels_impl,
    attr_aspects = ["deps"],
)

def _dependency_list_impl(context):
    out = context.actions.declare_file(context.label.name + ".txt")
    labels = sorted(context.attr.target[_Labels].labels.to_list())
    context.actions.write(out, "\n".join(labels) + "\n")
    return [DefaultInfo(
        files = depset([out]),
        runfiles = context.runfiles([out]),
    )]

dependency_list = rule(
    implementation = _dependency_list_impl,
    attrs = {"target": attr.label(aspects = [_labels], mandatory = True)},
)
