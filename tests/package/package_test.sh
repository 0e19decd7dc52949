#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What tools/package makes: laid out once, moved, and used from there by programs in C and C++
# that know nothing of this repository, by CMake and by pkg-config, shared and static; the command's
# libraries; the wheel, in an environment of Python's; the Debian packages, installed into a root of their own and removed.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }
step() { echo "--- $* ($SECONDS s)"; }
scratch=$TEST_TMPDIR

if readelf -d tools/packaging/libtessera_cpp_nn.so | grep -E "lib(a|ub|t)san"; then
  echo "skipped: a package is made of ordinary builds, not of a sanitizer's"
  exit 0
fi

step "packaging"
export SOURCE_DATE_EPOCH=1700000000
tools/packaging/package "$scratch/built"
prefix="$scratch/moved to here"
mv "$scratch/built" "$prefix"
mv "$prefix/packages" "$scratch/packages"
mv "$prefix"/*.whl "$scratch/packages"
if tools/packaging/package "$prefix" 2>"$scratch/refusal"; then fail "a full folder was taken"; fi
grep -qx "error: $prefix is not empty" "$scratch/refusal" || fail "$(cat "$scratch/refusal")"

step "no file knows where it was made"
for place in "$scratch/built" "$PWD" /execroot/ /sandbox/; do
  if grep -rlF -- "$place" "$prefix"; then fail "these files name $place"; fi
done

step "two wheels of one build have the same bytes"
version=$(sed -nE 's/^#define TSR_VERSION "(.*)"/\1/p' "$prefix/include/tessera.h")
wheel=$(python3 tools/packaging/wheel.py "$prefix" python/tessera "$scratch/again" "$version" "$(uname -m)")
[[ $wheel == tessera-*-py3-none-manylinux_2_*_$(uname -m).whl ]] || fail "the wheel is called $wheel"
cmp "$scratch/again/$wheel" "$scratch/packages/$wheel"

grep -qF "\"version\": \"$version\"," tools/packaging/vcpkg/tessera/vcpkg.json ||
  fail "tools/packaging/vcpkg/tessera/vcpkg.json is not of version $version"

# From here on, nothing of the build is in reach.
mkdir "$scratch/consumers"
for source in tests/package/{CMakeLists.txt,next_ids.c,next_ids_cpp.cc,own_module.cc,wheel_test.py} \
  examples/bigram.cc examples/embed/fine_tune.c; do
  cp -L "$source" "$scratch/consumers/"
done
cp -rL examples/outside/cmake "$scratch/project"
cp "$scratch"/project/my_{family,tessera}.cc "$scratch/consumers/"
cd "$scratch/consumers"
seq -s ' ' 2000 >book.txt

step "the command"
tessera="$prefix/bin/tessera"
"$tessera" --version
if ldd "$tessera" | grep -E 'libmpi|not found'; then fail "libraries of the command"; fi
# What the system has to have: libc's and the compiler's libraries.
ldd "$tessera" "$prefix"/lib/*.so | grep -vF "$prefix" |
  grep -vE '^\s*(linux-vdso|/lib64/ld-linux-x86-64|lib(c|m|gcc_s|stdc\+\+)\.so)|:$' &&
  fail "the tarball lacks these libraries"
"$tessera" models | grep gpt2 >/dev/null || fail "models"

"$tessera" train gpt-tiny --data book.txt --tokenizer byte --seq-len 16 --batch-size 1 --max-steps 1 \
  --out gpt >train.log 2>&1 || { cat train.log; exit 1; }
ids=$("$tessera" generate --model gpt/model --ids 72,105 --max-new-tokens 3)

for text in LICENSE NOTICE README.md docs/embedding.md docs/models/experts.md examples/bigram.cc examples/embed/family.c; do
  [ -s "$prefix/share/doc/tessera/$text" ] || fail "the prefix has no $text"
done

step "the bill of materials"
sbom="$prefix/share/doc/tessera/tessera.spdx.json"
grep -F '"spdxVersion": "SPDX-2.3"' "$sbom" >/dev/null || fail "no SPDX in $(head -c 200 "$sbom")"
# Each library of `--version --verbose`, by its name, and each file that the prefix brings along.
"$tessera" --version --verbose | tee verbose.txt
"$tessera" --version --json | tr '{' '\n' | sed -nE 's/^"name":"([^"]*)",.*/\1/p' >libraries.txt
[ "$(sed '1,/^libraries:$/d' verbose.txt | wc -l)" = "$(wc -l <libraries.txt)" ] || fail "text and JSON differ"
[ "$(wc -l <libraries.txt)" -gt 15 ] || fail "too few libraries"
while read -r library; do
  grep -F "\"name\": \"$library\"," "$sbom" >/dev/null || fail "the bill of materials has no $library"
  grep -F "  $library  " verbose.txt >/dev/null || fail "--verbose has no $library"
done <libraries.txt
for file in "$prefix"/lib/tessera/*; do
  grep -F "${file##*/}" "$sbom" >/dev/null || fail "the bill of materials has no ${file##*/}"
done
SOURCE_DATE_EPOCH=1700000000 "$tessera" --version --sbom >sbom.json
grep -F '"created": "2023-11-14T22:13:20Z"' sbom.json >/dev/null || fail "SOURCE_DATE_EPOCH is not asked"
cmp sbom.json <(SOURCE_DATE_EPOCH=1700000000 "$tessera" --version --sbom) || fail "two bills of one build differ"

step "the tarball"
tar --extract --file "$scratch"/packages/*.tar.gz --directory "$scratch"
diff -r "$scratch"/tessera-*-linux-* "$prefix" || fail "the tarball is not the prefix"

step "the wheel"
environment=$scratch/environment
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --no-index --no-cache-dir --disable-pip-version-check "$scratch/packages/$wheel"
cmp "$environment/bin/tessera" "$tessera"
"$environment/bin/tessera" --version
module=$(echo "$environment"/lib/python3*/site-packages/tessera)
ldd "$environment/bin/tessera" | grep -vF "$environment" |
  grep -vE '^\s*(linux-vdso|/lib64/ld-linux-x86-64|lib(c|m|gcc_s|stdc\+\+)\.so)' &&
  fail "the wheel lacks these libraries"
ldd "$module"/*.so.0 | grep -vE '^\s*(linux-vdso|/lib64/ld-linux-x86-64|lib(c|m)\.so)' &&
  fail "the module needs these libraries"
"$environment/bin/python" wheel_test.py gpt/model "$environment/bin/tessera" "$prefix/include" ||
  fail "the module for Python"
"$environment/bin/pip" --disable-pip-version-check uninstall --quiet --yes tessera
left=$(find "$environment" -name '*tessera*')
[ -z "$left" ] || fail "removing the wheel left $left"

step "CMake"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Debug >cmake.log || { cat cmake.log; exit 1; }
cmake --build build >cmake.log 2>&1 || { cat cmake.log; exit 1; }
for kind in "" _static; do
  for program in next_ids next_ids_cpp; do
    [ "$(build/$program$kind gpt/model)" = "$ids" ] || fail "$program$kind does not give $ids"
  done
  build/fine_tune$kind gpt/model "tuned$kind" >/dev/null
  build/own_module$kind own$kind.safetensors
  build/my_tessera$kind models | grep -w my-model >/dev/null || fail "my_tessera$kind has no my-model"
  build/bigram$kind book.txt run$kind >/dev/null
  "$tessera" inspect run$kind/checkpoint-200 >/dev/null || fail "bigram$kind saved nothing"
done
cmp own.safetensors own_static.safetensors
cmp tuned/model.safetensors tuned_static/model.safetensors
for file in run/checkpoint-200/*.safetensors; do cmp "$file" "${file/run/run_static}"; done
ldd build/bigram | grep -F "$prefix/lib/libtessera_cpp_train.so.0" >/dev/null || fail "bigram is not shared"
for program in bigram my_tessera; do
  if ldd build/${program}_static | grep libtessera; then fail "${program}_static is not static"; fi
done

step "the project template"
cmake -S "$scratch/project" -B project -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build project >cmake.log 2>&1 || { cat cmake.log; exit 1; }
project/my_model book.txt | tee loss
grep -qE '^final loss [0-3]\.[0-9]+$' loss || fail "my_model has learned nothing"
project/my_tessera train my-model --data book.txt --seq-len 16 --max-steps 1 --out mine >train.log 2>&1 ||
  { cat train.log; exit 1; }
project/my_tessera inspect mine/model >/dev/null

step "pkg-config"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
# Of flags with blanks in them: pkg-config escapes these.
result=()
flags() { eval "result=($(pkg-config "$@"))"; }
flags --cflags --libs tessera
cc -std=c99 next_ids.c "${result[@]}" -o next_ids
[ "$(LD_LIBRARY_PATH="$prefix/lib" ./next_ids gpt/model)" = "$ids" ] || fail "next_ids does not give $ids"
flags --static --cflags --libs tessera
cc -std=c99 next_ids.c "$prefix/lib/libtessera.a" -Wl,--as-needed "${result[@]}" -o next_ids_static
if ldd next_ids_static | grep -E 'libtessera|libstdc'; then fail "next_ids_static is not static"; fi
[ "$(./next_ids_static gpt/model)" = "$ids" ] || fail "next_ids_static does not give $ids"
flags --cflags tessera-nn
c++ "${result[@]}" -c own_module.cc -o own_module.o
(cd "$prefix/include" && find tessera -name '*.h' -printf '#include <%p>\n') >headers.cc
grep -rhoE '^#include "[^"]*"' "$prefix/include/tessera" | grep -v '"nlohmann/' && fail "includes by paths of the sources"
c++ "${result[@]}" -Wall -Werror -fsyntax-only headers.cc
flags --libs tessera-nn
c++ own_module.o "${result[@]}" -o own_module
LD_LIBRARY_PATH="$prefix/lib" ./own_module pc.safetensors
flags --static --libs tessera-nn
c++ own_module.o "$prefix/lib/libtessera_cpp_nn.a" -Wl,--as-needed "${result[@]}" -o own_module_static
if ldd own_module_static | grep libtessera; then fail "own_module_static is not static"; fi
./own_module_static pc_static.safetensors
flags --cflags --libs tessera-main
c++ my_tessera.cc "${result[@]}" -o main
LD_LIBRARY_PATH="$prefix/lib" ./main models >/dev/null
cmp own.safetensors pc.safetensors
cmp own.safetensors pc_static.safetensors
flags --modversion tessera-train
flags --cflags --libs tessera-training
cc -std=c99 fine_tune.c "${result[@]}" -o fine_tune
LD_LIBRARY_PATH="$prefix/lib" ./fine_tune gpt/model tuned_pc >/dev/null
cmp tuned/model.safetensors tuned_pc/model.safetensors

step "Debian packages"
# The packages that this machine has are those of the root, so that what is depended on is asked for.
root=$scratch/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
cp /var/lib/dpkg/status "$root/var/lib/dpkg/status"
as_user() { PATH=$PATH:/usr/sbin:/sbin dpkg --root="$root" --force-not-root --force-script-chrootless --log=/dev/null "$@"; }
as_user -i "$scratch"/packages/*.deb >dpkg.log 2>&1 || { grep -v 'files list file' dpkg.log; exit 1; }
"$root/usr/bin/tessera" --version
# The library for C needs libc alone.
dpkg-deb --field "$scratch"/packages/libtessera0_*.deb Depends | grep -vE '^libc6 \([^),]*\)$' &&
  fail "what libtessera0 depends on"
packages=(tessera libtessera0 libtessera-dev libtessera-cpp0 libtessera-cpp-dev)
for name in "${packages[@]}"; do
  dpkg --root="$root" --status $name | grep -x "Status: install ok installed" >/dev/null || fail "$name is not installed"
  grep -F "Apache License" "$root/usr/share/doc/$name/copyright" >/dev/null || fail "$name has no licence"
  [ -s "$root/usr/share/doc/$name/$name.spdx.json" ] || fail "$name has no bill of materials"
done
[ -e "$root/usr/include/tessera/core/tensor.h" ] || fail "no headers"
PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" pkg-config --exists tessera-train
# Without the parts for C++, CMake still finds the one for C.
as_user -r libtessera-cpp-dev libtessera-cpp0 >dpkg.log 2>&1 || { grep -v 'files list file' dpkg.log; exit 1; }
mkdir c_alone
printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(c_alone C)' 'find_package(tessera REQUIRED)' \
  'add_executable(next_ids ../next_ids.c)' 'target_link_libraries(next_ids tessera::tessera)' >c_alone/CMakeLists.txt
cmake -S c_alone -B c_alone/build -DCMAKE_PREFIX_PATH="$root/usr" >cmake.log || { cat cmake.log; exit 1; }
cmake --build c_alone/build >cmake.log 2>&1 || { cat cmake.log; exit 1; }
[ "$(c_alone/build/next_ids gpt/model)" = "$ids" ] || fail "next_ids of libtessera-dev does not give $ids"
as_user -r tessera libtessera-dev libtessera0 >dpkg.log 2>&1 || { grep -v 'files list file' dpkg.log; exit 1; }
left=$(find "$root/usr" -not -type d 2>/dev/null || true)
[ -z "$left" ] || fail "removing left $left"

step "done"
