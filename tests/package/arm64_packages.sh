#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `tools/package --arm64 DIR` has made, by the cross compiler and QEMU: arm64_packages.sh DIR
#
# The Debian packages in a root of their own, with a program in C that is compiled against them; the
# wheel's command, beside the libraries that the wheel brings.
set -euo pipefail
shopt -s nullglob
fail() { echo "FAILED: $*" >&2; exit 1; }
prefix=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
arm64=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)

for file in "$prefix"/bin/* "$prefix"/lib/*.so.0 "$prefix"/lib/tessera/*; do
  readelf -h "$file" | grep AArch64 >/dev/null || fail "$file is not of ARM64"
done

for package in "$prefix"/packages/*.deb; do
  [ "$(dpkg-deb -f "$package" Architecture)" = arm64 ] || fail "the architecture of $package"
  if dpkg-deb -f "$package" Depends | grep -E ':arm64|cross'; then fail "Depends of $package"; fi
  dpkg-deb -x "$package" root
done
dpkg-deb -f "$prefix"/packages/libtessera0_*.deb Depends | tee depends
grep -xE 'libc6 \(>= [0-9.]+\)' depends >/dev/null || fail "the library depends on more than libc"
dpkg-deb -f "$prefix"/packages/tessera_*.deb Depends | grep 'libyaml-cpp0.7' >/dev/null ||
  fail "the command's package has no dependencies"

seq -s ' ' 2000 >book.txt
"${arm64[@]}" root/usr/bin/tessera --version
"${arm64[@]}" root/usr/bin/tessera train gpt-tiny --data book.txt --tokenizer byte --seq-len 16 --batch-size 1 \
  --max-steps 1 --out gpt >train.log 2>&1 || { cat train.log; exit 1; }
ids=$("${arm64[@]}" root/usr/bin/tessera generate --model gpt/model --ids 72,105 --max-new-tokens 3)

compile=(aarch64-linux-gnu-gcc -std=c99 "$here/next_ids.c" -Iroot/usr/include)
"${compile[@]}" -Lroot/usr/lib -ltessera -o next_ids
"${compile[@]}" root/usr/lib/libtessera.a -lm -o next_ids_static
[ "$("${arm64[@]}" -E LD_LIBRARY_PATH=root/usr/lib next_ids gpt/model)" = "$ids" ] || fail "next_ids"
[ "$("${arm64[@]}" next_ids_static gpt/model)" = "$ids" ] || fail "next_ids_static"

wheels=("$prefix"/tessera-*-py3-none-manylinux_2_*_aarch64.whl)
[ ${#wheels[@]} -eq 1 ] || fail "wheels: ${wheels[*]}"
python3 -m zipfile -e "${wheels[0]}" wheel
environment=$(echo wheel/tessera-*.data)
mv "$environment/scripts" "$environment/data/bin"
chmod +x "$environment/data/bin/tessera"
# Libraries that the wheel lacks would be found in the cross compiler's folder: only libc's and the compiler's may be.
"${arm64[@]}" /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 --list "$environment/data/bin/tessera" >libraries
if grep -F '=> /lib/' libraries | grep -vE 'lib(c|m|gcc_s|stdc\+\+)\.so'; then fail "the wheel lacks these libraries"; fi
[ "$("${arm64[@]}" "$environment/data/bin/tessera" generate --model gpt/model --ids 72,105 --max-new-tokens 3)" = "$ids" ] ||
  fail "the wheel's command"
echo "the packages for ARM64 are right"
