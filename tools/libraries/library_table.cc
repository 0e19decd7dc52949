// SPDX-License-Identifier: Apache-2.0
#include "tools/libraries/library_table.h"

#include <cstdio>
// jpeglib.h needs <cstdio>.
#include <absl/base/config.h>
#include <csv.h>
#include <curl/curlver.h>
#include <gnu/libc-version.h>
#include <jpeglib.h>
#include <libxml/xmlversion.h>
#include <lz4.h>
#include <oniguruma.h>
#include <png.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <CLI/Version.hpp>
#include <Eigen/Core>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>

// The bindings for C++ would ask for the library.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "base/status.h"
#include "tools/libraries/cuda_versions.h"
#include "tools/libraries/pkg_config_versions.h"

namespace tessera::tools {
namespace {

#define TESSERA_TEXT_(x) #x
#define TESSERA_TEXT(x) TESSERA_TEXT_(x)

template <typename... Parts>
std::string Dotted(const Parts&... parts) {
  std::string text;
  ((text += (text.empty() ? "" : ".") + Concat(parts)), ...);
  return text;
}

std::string BoostVersion() {
  return Dotted(BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100);
}

std::string OnigurumaVersion() {
  return Dotted(ONIGURUMA_VERSION_MAJOR, ONIGURUMA_VERSION_MINOR, ONIGURUMA_VERSION_TEENY);
}

std::string JsonVersion() {
  return Dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                NLOHMANN_JSON_VERSION_PATCH);
}

std::vector<Library> MakeTable() {
  using Kind = Library::Kind;
  const CudaVersions cuda = VersionsOfCuda();
  return {
      {.name = "Abseil",
       .licence = "Apache-2.0",
       .home = "https://abseil.io",
       .use = "training, corpora, commands",
       .version = Dotted(ABSL_LTS_RELEASE_VERSION, ABSL_LTS_RELEASE_PATCH_LEVEL),
       .files = {"libabsl_"},
       .target = "absl"},
      {.name = "Boost (Asio, Beast)",
       .licence = "BSL-1.0",
       .home = "https://www.boost.org",
       .use = "the server and its client",
       .kind = Kind::kSources,
       .version = BoostVersion(),
       .target = "boost"},
      {.name = "CLI11",
       .licence = "BSD-3-Clause",
       .home = "https://github.com/CLIUtils/CLI11",
       .use = "command lines",
       .kind = Kind::kSources,
       .version = CLI11_VERSION,
       .target = "cli11"},
      {.name = "cuBLASLt",
       .licence = "LicenseRef-NVIDIA-CUDA",
       .home = "https://developer.nvidia.com/cublas",
       .use = "products on GPUs",
       .kind = Kind::kLoaded,
       .version = cuda.cublas,
       .files = {"libcublasLt.so"},
       .with_cuda = true},
      {.name = "CUDA runtime",
       .licence = "LicenseRef-NVIDIA-CUDA",
       .home = "https://developer.nvidia.com/cuda-toolkit",
       .use = "GPUs",
       .kind = Kind::kSources,
       .version = cuda.runtime,
       .with_cuda = true},
      {.name = "cuDNN",
       .licence = "LicenseRef-NVIDIA-cuDNN",
       .home = "https://developer.nvidia.com/cudnn",
       .use = "attention on GPUs",
       .kind = Kind::kLoaded,
       .version = cuda.cudnn,
       .files = {"libcudnn"},
       .with_cuda = true},
      {.name = "curl (libcurl)",
       .licence = "curl",
       .home = "https://curl.se",
       .use = "corpus fetch",
       .kind = Kind::kLoaded,
       .version = LIBCURL_VERSION,
       .files = {"libcurl.so"},
       .target = "curl"},
      {.name = "Eigen",
       .licence = "MPL-2.0",
       .home = "https://eigen.tuxfamily.org",
       .use = "decompositions (Muon, adapters)",
       .kind = Kind::kSources,
       .version = Dotted(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION),
       .target = "eigen"},
      {.name = "GCC's libraries (libstdc++, libgcc)",
       .licence = "GPL-3.0-or-later WITH GCC-exception-3.1",
       .home = "https://gcc.gnu.org",
       .use = "everywhere",
       .version = __VERSION__,
       .files = {"libstdc++.so", "libgcc_s.so"}},
      {.name = "glibc",
       .licence = "LGPL-2.1-or-later",
       .home = "https://www.gnu.org/software/libc",
       .use = "everywhere",
       .version = Dotted(__GLIBC__, __GLIBC_MINOR__),
       .files = {"libc.so", "libm.so", "libmvec.so", "libdl.so", "librt.so", "libpthread.so",
                 "libresolv.so", "ld-linux"},
       .version_function = "gnu_get_libc_version"},
      {.name = "ICU",
       .licence = "Unicode-DFS-2016",
       .home = "https://icu.unicode.org",
       .use = "libxml2",
       .files = {"libicu"}},
      {.name = "JSON for Modern C++",
       .licence = "MIT",
       .home = "https://github.com/nlohmann/json",
       .use = "everywhere",
       .kind = Kind::kSources,
       .version = JsonVersion(),
       .target = "json"},
      {.name = "libcsv",
       .licence = "LGPL-2.1-or-later",
       .home = "https://github.com/rgamble/libcsv",
       .use = "tables",
       .version = Dotted(CSV_MAJOR, CSV_MINOR, CSV_RELEASE),
       .files = {"libcsv.so"},
       .target = "csv"},
      {.name = "libjpeg-turbo",
       .licence = "IJG AND BSD-3-Clause AND Zlib",
       .home = "https://libjpeg-turbo.org",
       .use = "pictures",
       .version = TESSERA_TEXT(LIBJPEG_TURBO_VERSION),
       .files = {"libjpeg.so"},
       .target = "jpeg"},
      {.name = "liblzma",
       .licence = "LicenseRef-liblzma-public-domain",
       .home = "https://tukaani.org/xz",
       .use = "libxml2",
       .files = {"liblzma.so"},
       .version_function = "lzma_version_string"},
      {.name = "libpng",
       .licence = "libpng-2.0",
       .home = "http://www.libpng.org/pub/png/libpng.html",
       .use = "pictures",
       .version = PNG_LIBPNG_VER_STRING,
       .files = {"libpng16.so"},
       .target = "png"},
      {.name = "libxml2",
       .licence = "MIT",
       .home = "https://gitlab.gnome.org/GNOME/libxml2",
       .use = "HTML of corpora",
       .version = LIBXML_DOTTED_VERSION,
       .files = {"libxml2.so"},
       .target = "libxml2"},
      {.name = "LZ4",
       .licence = "BSD-2-Clause",
       .home = "https://lz4.org",
       .use = "Parquet and Arrow files",
       .version = LZ4_VERSION_STRING,
       .files = {"liblz4.so"},
       .version_function = "LZ4_versionString",
       .target = "lz4"},
      {.name = "NCCL",
       .licence = "BSD-3-Clause",
       .home = "https://github.com/NVIDIA/nccl",
       .use = "ranks on GPUs",
       .kind = Kind::kLoaded,
       .version = cuda.nccl,
       .files = {"libnccl.so"},
       .with_cuda = true},
      {.name = "NVRTC",
       .licence = "LicenseRef-NVIDIA-CUDA",
       .home = "https://developer.nvidia.com/cuda-toolkit",
       .use = "cuDNN",
       .kind = Kind::kLoaded,
       .version = cuda.runtime,
       .files = {"libnvrtc"},
       .with_cuda = true},
      {.name = "Oniguruma",
       .licence = "BSD-2-Clause",
       .home = "https://github.com/kkos/oniguruma",
       .use = "regular expressions of tokenizers",
       .kind = Kind::kSources,
       .version = OnigurumaVersion(),
       .target = "oniguruma"},
      {.name = "Open MPI",
       .licence = "BSD-3-Clause-Open-MPI",
       .home = "https://www.open-mpi.org",
       .use = "ranks",
       .kind = Kind::kLoaded,
       .version = Dotted(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
       .files = {"libmpi.so", "libopen-rte.so", "libopen-pal.so"},
       .target = "openmpi"},
      {.name = "SentencePiece",
       .licence = "Apache-2.0 AND BSD-3-Clause AND MIT",  // with protobuf-lite, darts-clone, esaxx
       .home = "https://github.com/google/sentencepiece",
       .use = "training of tokenizers",
       .version = TESSERA_SENTENCEPIECE,
       .files = {"libsentencepiece"},
       .target = "sentencepiece"},
      {.name = "Snappy",
       .licence = "BSD-3-Clause",
       .home = "https://google.github.io/snappy",
       .use = "Parquet files",
       .version = Dotted(SNAPPY_MAJOR, SNAPPY_MINOR, SNAPPY_PATCHLEVEL),
       .files = {"libsnappy.so"},
       .target = "snappy"},
      {.name = "yaml-cpp",
       .licence = "MIT",
       .home = "https://github.com/jbeder/yaml-cpp",
       .use = "YAML configurations",
       .version = TESSERA_YAML_CPP,
       .files = {"libyaml-cpp.so"},
       .target = "yaml_cpp"},
      {.name = "zlib",
       .licence = "Zlib",
       .home = "https://zlib.net",
       .use = "gzip",
       .version = ZLIB_VERSION,
       .files = {"libz.so"},
       .version_function = "zlibVersion",
       .target = "zlib"},
      {.name = "Zstandard",
       .licence = "BSD-3-Clause OR GPL-2.0-only",
       .home = "https://facebook.github.io/zstd",
       .use = "zstd",
       .version = ZSTD_VERSION_STRING,
       .files = {"libzstd.so"},
       .version_function = "ZSTD_versionString",
       .target = "zstd"},
  };
}

}  // namespace

const std::vector<Library>& LibraryTable() {
  static const auto* const table = new std::vector<Library>(MakeTable());
  return *table;
}

bool IsBuiltIn(const Library& library) { return !library.with_cuda || VersionsOfCuda().built; }

const std::vector<OwnLicence>& OwnLicences() {
  static const auto* const licences = new std::vector<OwnLicence>{
      {"LicenseRef-liblzma-public-domain", "liblzma's public domain",
       "liblzma is in the public domain (COPYING of XZ Utils 5.4)."},
      {"LicenseRef-NVIDIA-CUDA", "NVIDIA's agreement for the CUDA toolkit",
       "License Agreement for NVIDIA Software Development Kits with the CUDA toolkit's supplement: "
       "https://docs.nvidia.com/cuda/eula"},
      {"LicenseRef-NVIDIA-cuDNN", "NVIDIA's agreement for cuDNN",
       "NVIDIA Software Development Kit license agreement with cuDNN's supplement: "
       "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/eula.html"},
  };
  return *licences;
}

}  // namespace tessera::tools
