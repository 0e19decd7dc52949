#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# describe_interface.sh VERSION writes tests/runtime/tessera_VERSION.abi of the headers as they are.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 tests/runtime/interface_stub.py runtime/tessera_training.h runtime "$scratch/stub.c"
cc -w -g -fPIC -shared "$scratch/stub.c" -o "$scratch/stub.so"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-architecture "$scratch/stub.so" \
  >"tests/runtime/tessera_$1.abi"
