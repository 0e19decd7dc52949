#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The project of examples/outside/bazel, copied elsewhere, as a workspace of its own on this one.
#
#   tests/outside/bazel_workspace.sh               builds it, which compiles Tessera once more, and
#                                                  runs its programs
#   tests/outside/bazel_workspace.sh --analyse     builds nothing: every label, visibility and rule
#                                                  that it needs is there. tools/test does this
#
# Further options go to `bazel build`; BAZEL names another Bazel, with its startup options.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "FAILED: $*" >&2; exit 1; }

# The projects for Bazel and CMake are copied one without the other, so each has the sources.
for source in examples/outside/bazel/*.cc; do
  cmp "$source" "${source/bazel/cmake}" || fail "the sources of examples/outside differ"
done

build=(build)
if [ "${1-}" = --analyse ]; then
  build=(build --nobuild)
  shift
fi
scratch=$(mktemp -d)
read -ra bazel <<<"${BAZEL:-bazel}"
run_bazel() { (cd "$scratch/project" && "${bazel[@]}" --output_base="$scratch/output" "$@"); }
finish() {
  run_bazel shutdown || true
  chmod -R u+w "$scratch"
  rm -rf "$scratch"
}
trap finish EXIT

cp -r examples/outside/bazel "$scratch/project"
run_bazel "${build[@]}" --override_repository=tessera="$PWD" \
  --disk_cache="$HOME/.cache/tessera/bazel" --show_result=0 --noshow_progress \
  --ui_event_filters=-info --nosandbox_debug "$@" //...
[ "${build[*]}" = build ] || exit 0

cd "$scratch"
seq -s ' ' 2000 >book.txt
project/bazel-bin/my_model book.txt | tee loss
grep -qE '^final loss [0-3]\.[0-9]+$' loss || fail "my_model has learned nothing"
project/bazel-bin/my_tessera models | grep -w my-model >/dev/null || fail "no my-model"
