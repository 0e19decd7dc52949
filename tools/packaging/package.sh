#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays out the command, the libraries and what their users need: package DIR
#
#   DIR/bin, include, lib, share    a prefix that may be moved
#   DIR/packages                    the same as a tarball, and as Debian packages
#   DIR/tessera-*.whl               the command, and the library with its module for Python
#
# It runs in the folder of its runfiles. The tarball brings the shared libraries along, in
# lib/tessera, that are neither libc's nor the compiler's; the Debian packages depend on theirs.
set -euo pipefail
shopt -s nullglob

[ $# -eq 1 ] || { echo "usage: tools/package DIR" >&2; exit 2; }
case $1 in /*) prefix=$1 ;; *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$1 ;; esac
if [ -e "$prefix" ] && [ -n "$(ls -A "$prefix")" ]; then
  echo "error: $prefix is not empty" >&2
  exit 2
fi
here=tools/packaging
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
command=tools/tessera

# What runs and reads programs for `machine`. Those for ARM64 that another machine has made run in QEMU,
# with the libraries of the cross compiler.
machine=$(uname -m)
architecture=$(dpkg --print-architecture)
emulate=() strip=strip shlibdeps=(dpkg-shlibdeps)
libraries_of() { ldd "$@"; }
if [ "$machine" != aarch64 ] && LC_ALL=C readelf --file-header "$command" | grep -q AArch64; then
  machine=aarch64
  architecture=arm64
  root=/usr/aarch64-linux-gnu
  emulate=(qemu-aarch64-static -L "$root")
  strip=aarch64-linux-gnu-strip
  shlibdeps=(env DEB_HOST_ARCH=arm64 dpkg-shlibdeps -l"$root/lib")
  libraries_of() {
    for file; do
      "${emulate[@]}" "$root/lib/ld-linux-aarch64.so.1" --list "$file" | sed "s|=> /lib/|=> $root/lib/|"
    done
  }
fi

version=$("${emulate[@]}" $command --version)
version=${version#tessera } version=${version%% *}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date +%s)}

# --- The prefix ----------------------------------------------------------------------------------

install_file() { install -D -m "$1" "$2" "$3"; }

# lib/NAME.so.0, with the name that linkers look for beside it, and lib/NAME.a.
install_library() {
  install_file 644 "$1.so" "$prefix/lib/${1##*/}.so.0"
  "$strip" --strip-unneeded "$prefix/lib/${1##*/}.so.0"
  ln -s "${1##*/}.so.0" "$prefix/lib/${1##*/}.so"
  install_file 644 "$1.a" "$prefix/lib/${1##*/}.a"
}

# A .pc file: name, description, and its other lines.
install_pc() {
  mkdir -p "$prefix/lib/pkgconfig"
  # shellcheck disable=SC2016  # the variables are pkg-config's
  printf '%s\n' 'prefix=${pcfiledir}/../..' "Name: $1" "Description: $2" "Version: $version" \
    "${@:3}" >"$prefix/lib/pkgconfig/$1.pc"
}

mkdir -p "$prefix"
install_file 755 $command "$prefix/bin/tessera"
"$strip" "$prefix/bin/tessera"
mkdir -p "$prefix/share/man/man1" "$prefix/share/bash-completion/completions"
"${emulate[@]}" $command manual >"$prefix/share/man/man1/tessera.1"
"${emulate[@]}" $command completion >"$prefix/share/bash-completion/completions/tessera"

for text in LICENSE NOTICE; do install_file 644 $text "$prefix/share/doc/tessera/$text"; done
"${emulate[@]}" $command --version --sbom >"$prefix/share/doc/tessera/tessera.spdx.json"

# Guides and examples, beside each other as the guides link to the examples.
for file in README.md CHANGELOG.md docs/*.md docs/*/* examples/*.* examples/*/*.*; do
  install_file 644 "$file" "$prefix/share/doc/tessera/$file"
done

# For C: whatever the runtime has.
for header in runtime/tessera*.h runtime/tessera*.hpp; do
  install_file 644 "$header" "$prefix/include/${header##*/}"
done
for library in runtime/libtessera*.so; do
  install_library "${library%.so}"
  name=${library#runtime/lib} name=${name%.so}
  # shellcheck disable=SC2016  # the variables are pkg-config's
  install_pc "${name//_/-}" "Tessera's runtime for C" \
    'Libs: -L${prefix}/lib -l'"$name" 'Libs.private: -lm' 'Cflags: -I${prefix}/include'
done

for library in $here/libtessera_cpp_*.so; do
  install_library "${library%.so}"
done

# Public headers, and in internal/ those that they include. A header includes another by its place.
declare -A place
while read -r header; do place[$header]=tessera/$header; done < <(cat $here/tessera_cpp_*.headers)
headers=("${!place[@]}")
while [ ${#headers[@]} -gt 0 ]; do
  found=()
  while read -r header; do
    if [ -n "${place[$header]:-}" ] || [ ! -e "$header" ]; then continue; fi
    place[$header]=tessera/internal/$header
    found+=("$header")
  done < <(sed -nE 's/^ *# *include "(.*)"$/\1/p' "${headers[@]}" | sort -u)
  headers=("${found[@]}")
done
for header in "${!place[@]}"; do
  echo "s|#include \"$header\"|#include <${place[$header]}>|"
done >"$scratch/places.sed"
for header in "${!place[@]}"; do
  sed -f "$scratch/places.sed" "$header" >"$scratch/header.h"
  install_file 644 "$scratch/header.h" "$prefix/include/${place[$header]}"
done
for header in $here/include/tessera/*.h; do
  install_file 644 "$header" "$prefix/include/tessera/${header##*/}"
done
# It is before the system's, as it did when the libraries were compiled.
install_file 644 third_party/json/nlohmann/json.hpp "$prefix/include/tessera/internal/json/nlohmann/json.hpp"
# shellcheck disable=SC2016  # the variables are pkg-config's
{
  install_pc tessera-nn "Models, their parts, optimizers and data, for C++20" \
    'Requires: nlohmann_json' \
    'Libs: -L${prefix}/lib -ltessera_cpp_nn' \
    'Libs.private: -lcsv -ljpeg -llz4 -lpng -lsnappy -lyaml-cpp -lz -lzstd -lm' \
    'Cflags: -std=c++20 -I${prefix}/include -I${prefix}/include/tessera/internal/json'
  install_pc tessera-train "The trainer and its parallel layouts, for C++20" \
    "Requires: tessera-nn = $version" \
    'Libs: -L${prefix}/lib -ltessera_cpp_train' \
    'Libs.private: -labsl_str_format_internal -labsl_strings -labsl_throw_delegate'
  install_pc tessera-main "The command line as a library, for C++20" \
    "Requires: tessera-train = $version" \
    'Libs: -L${prefix}/lib -ltessera_cpp_main' \
    'Libs.private: -labsl_hash -labsl_raw_hash_set -labsl_time -labsl_time_zone -lsentencepiece_train -lsentencepiece -lxml2 -lz -lzstd'
}
install_file 644 $here/tessera-config.cmake "$prefix/lib/cmake/tessera/tessera-config.cmake"
cat >"$prefix/lib/cmake/tessera/tessera-config-version.cmake" <<END
set(PACKAGE_VERSION $version)
string(REGEX MATCH "^[0-9]+[.][0-9]+" _tessera_wanted "\${PACKAGE_FIND_VERSION}")
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION AND
   "\${_tessera_wanted}" STREQUAL "${version%.*}")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
END

# --- Debian packages -----------------------------------------------------------------------------

# What the dynamic linker will ask for of these files, as Depends has it.
dependencies() {
  mkdir -p "$scratch/shlibs/debian"
  printf 'Source: tessera\n\nPackage: tessera\nArchitecture: any\n' >"$scratch/shlibs/debian/control"
  (cd "$scratch/shlibs" && "${shlibdeps[@]}" -O -l"$prefix/lib" -xlibtessera0 -xlibtessera-cpp0 --ignore-missing-info \
    "${@/#/-e}" 2>"$scratch/shlibs.log") | sed 's/^shlibs:Depends=//; s/:arm64//g; s/-arm64-cross//g' || { cat "$scratch/shlibs.log" >&2; exit 1; }
}

# A package of the files under $scratch/NAME: name, section, depends, description, further lines.
build_deb() {
  local tree=$scratch/$1
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$1"
  cat NOTICE LICENSE >"$tree/usr/share/doc/$1/copyright"
  cp "$prefix/share/doc/tessera/tessera.spdx.json" "$tree/usr/share/doc/$1/$1.spdx.json"
  {
    printf '%s\n' "Package: $1" "Version: $version" "Architecture: $architecture" \
      "Section: $2" "Priority: optional" "Maintainer: The Tessera maintainers <tessera@localhost>" \
      "Installed-Size: $(du -k -s "$tree/usr" | cut -f1)"
    [ -z "$3" ] || echo "Depends: $3"
    [ $# -lt 5 ] || printf '%s\n' "${@:5}"
    printf '%s\n' "Description: $4"
  } >"$tree/DEBIAN/control"
  dpkg-deb --root-owner-group -Zxz -z1 --build "$tree" \
    "$prefix/packages/$1_${version}_$architecture.deb" >/dev/null
}

# Hard links cost no space; nothing of a package is changed.
into() { mkdir -p "$scratch/$1/usr/$2" && cp -al "${@:3}" "$scratch/$1/usr/$2"; }

mkdir "$prefix/packages"
# For C: what needs libc alone.
c_libraries=("$prefix"/lib/libtessera.so.0 "$prefix"/lib/libtessera_training.so.0)
cpp_libraries=("$prefix"/lib/libtessera_cpp_*.so.0)
for package in libtessera0 libtessera-cpp0; do
  mkdir -p "$scratch/$package/DEBIAN"
  echo "activate-noawait ldconfig" >"$scratch/$package/DEBIAN/triggers"
done
into libtessera0 lib "${c_libraries[@]}"
build_deb libtessera0 libs "$(dependencies "${c_libraries[@]}")" "deep learning framework: libraries for C"
into libtessera-cpp0 lib "${cpp_libraries[@]}"
build_deb libtessera-cpp0 libs "$(dependencies "${cpp_libraries[@]}")" "deep learning framework: libraries for C++" \
  "Replaces: libtessera0"
into libtessera-dev lib "${c_libraries[@]%.0}" "$prefix"/lib/libtessera{,_training}.a "$prefix/lib/cmake"
into libtessera-dev lib/pkgconfig "$prefix"/lib/pkgconfig/tessera{,-training}.pc
into libtessera-dev include "$prefix"/include/*.h "$prefix"/include/*.hpp
build_deb libtessera-dev libdevel "libtessera0 (= $version)" "deep learning framework: headers and archives for C"
into libtessera-cpp-dev lib "${cpp_libraries[@]%.0}" "$prefix"/lib/libtessera_cpp_*.a
into libtessera-cpp-dev lib/pkgconfig "$prefix"/lib/pkgconfig/tessera-{nn,train,main}.pc
into libtessera-cpp-dev include "$prefix/include/tessera"
build_deb libtessera-cpp-dev libdevel \
  "libtessera-cpp0 (= $version), libtessera-dev (= $version), nlohmann-json3-dev, libabsl-dev, libcsv-dev, libjpeg-dev, liblz4-dev, libpng-dev, libsentencepiece-dev, libsnappy-dev, libxml2-dev, libyaml-cpp-dev, libzstd-dev, zlib1g-dev" \
  "deep learning framework: headers and archives for C++" "Replaces: libtessera-dev"
into tessera bin "$prefix/bin/tessera"
into tessera share "$prefix/share/man" "$prefix/share/bash-completion"
into tessera share/doc/tessera "$prefix"/share/doc/tessera/{README.md,CHANGELOG.md,docs,examples}
build_deb tessera science "$(dependencies "$prefix/bin/tessera")" \
  "deep learning framework: trains and runs transformers" "Recommends: openmpi-bin"

# --- The tarball ---------------------------------------------------------------------------------

# Copies of the libraries that not every system has, under the names that are looked for, with the
# notices of the packages they are from.
bring_along() {
  local name path package
  mkdir -p "$prefix/lib/tessera" "$prefix/share/doc/tessera"
  while read -r name path; do
    install_file 644 "$path" "$prefix/lib/tessera/$name"
    # /lib is a link to /usr/lib; a package's list has either.
    package=$(dpkg -S "*/$(basename "$(realpath "$path")")" | sed 's/[:,].*//;s/-arm64-cross$//;q')
    cp -L "/usr/share/doc/$package/copyright" "$prefix/share/doc/tessera/$package.copyright"
  done < <(libraries_of "$prefix"/bin/tessera "$prefix"/lib/*.so.0 | awk '$1 !~ "/" && $2 == "=>" { print $1, $3 }' |
    sort -u | grep -vE '^(libc|libm|libgcc_s|libstdc\+\+|libtessera[a-z_]*)\.so')
}
bring_along
name=tessera-$version-linux-$machine
tar --create --gzip --file "$prefix/packages/$name.tar.gz" --directory "$prefix" \
  --exclude=./packages --transform "s,^\.,$name," --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner .

# --- The wheel -----------------------------------------------------------------------------------

python3 $here/wheel.py "$prefix" python/tessera "$prefix" "$version" "$machine" >/dev/null
