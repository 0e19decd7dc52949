# SPDX-License-Identifier: Apache-2.0
# How clang reads a source of this tree beside bazel. tools/lint and tools/mutate source this file.
# shellcheck disable=SC2034  # its readers use them
clang_flags=(-std=c++20 -I. -Ithird_party/json -Ithird_party/oniguruma/src -isystem /usr/include/eigen3
  -isystem /usr/include/libxml2 -isystem /usr/lib/x86_64-linux-gnu/openmpi/include)
# Of kernels (*_isa.cc), which are compiled once for each instruction set: the widest.
clang_isa_flags=(-DTESSERA_ISA=avx512 -DTESSERA_ISA_AVX512=1 -DTESSERA_ISA_AVX512BF16=1 -mavx512f -mavx512bw
  -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mavx2 -mfma -mf16c -mamx-tile -mamx-bf16)
