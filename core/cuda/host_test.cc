// SPDX-License-Identifier: Apache-2.0
// What of core/cuda needs no GPU: why a device cannot be used, and where libraries are found.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/cuda/device_problem.h"
#include "core/cuda/dynamic_library.h"
#include "core/cuda/strided_index.h"

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;
using Answer = DeviceProbe::Answer;

TEST(DeviceProblem, SaysWhatIsMissing) {
  EXPECT_EQ(DeviceProblem({.answer = Answer::kNoDevice}, 0),
            "cuda:0: this machine has no GPU that CUDA can use");
  EXPECT_EQ(DeviceProblem({.answer = Answer::kDriverTooOld}, 0),
            "cuda:0: this machine has no NVIDIA driver");
  EXPECT_EQ(
      DeviceProblem(
          {.answer = Answer::kDriverTooOld, .driver_version = 12080, .runtime_version = 13000}, 1),
      "cuda:1: the NVIDIA driver is too old: it supports CUDA 12.8, this program was built "
      "with CUDA 13.0");
  EXPECT_EQ(DeviceProblem({.answer = Answer::kOther, .text = "unknown error"}, 0),
            "cuda:0: the GPUs do not answer: unknown error");
}

TEST(DeviceProblem, SaysWhichGpusThereAre) {
  EXPECT_EQ(DeviceProblem({.devices = 8}, 8),
            "cuda:8: this machine has 8 GPUs, the last is cuda:7");
  EXPECT_EQ(DeviceProblem({.devices = 1}, 7), "cuda:7: this machine has 1 GPU (cuda:0)");
  EXPECT_EQ(DeviceProblem({.devices = 0}, 0), "cuda:0: this machine has no GPU that CUDA can use");
}

TEST(DeviceProblem, AsksForAComputeCapabilityThatKernelsWereBuiltFor) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}}) {
    EXPECT_EQ(DeviceProblem({.devices = 1, .major = major, .minor = minor}, 0), "");
  }
  for (const auto& [major, minor] : {std::pair{7, 5}, {10, 0}, {12, 0}}) {
    EXPECT_NE(DeviceProblem({.devices = 1, .major = major, .minor = minor}, 0), "");
  }
}

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / ("tessera_library_test." + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path Make(const std::string& folder) const {
    fs::create_directories(path_ / folder);
    return path_ / folder;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

LibrarySearch SearchWith(const fs::path& program, std::map<std::string, std::string> variables) {
  return {program.string(), [variables](const char* name) {
            const auto found = variables.find(name);
            return found == variables.end() ? std::string() : found->second;
          }};
}

TEST(LibrarySearch, LooksInPythonEnvironmentsAndInTheOrderSaid) {
  const Folder folder;
  const fs::path named = folder.Make("named");
  const fs::path program = folder.Make("bin");
  const fs::path beside = folder.Make("lib");
  const fs::path home = folder.Make("cuda/lib64");
  const fs::path packages = folder.Make("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
  folder.Make("venv/bin");
  std::ofstream(folder.path() / "venv/bin/python3") << "";
  const LibrarySearch search =
      SearchWith(program, {{"TESSERA_CUDA_LIBRARIES", named.string() + "::/nowhere"},
                           {"CUDA_HOME", (folder.path() / "cuda").string()},
                           {"PATH", "/nowhere:" + (folder.path() / "venv/bin").string()}});
  const std::vector<std::string> expected = {named.string(), program.string(), beside.string(), "",
                                             home.string(),  packages.string()};
  EXPECT_EQ(search.Folders(), expected);
}

TEST(DynamicLibrary, OneLineForWhatIsMissingOrBroken) {
  const Folder folder;
  const LibrarySearch search = SearchWith(folder.path(), {{"CUDA_HOME", "/nowhere"}});
  const auto missing = DynamicLibrary::Open("libtessera_nothing.so.1", search);
  EXPECT_EQ(Message(missing.status()),
            "libtessera_nothing.so.1 is not on this machine; TESSERA_CUDA_LIBRARIES, "
            "LD_LIBRARY_PATH or VIRTUAL_ENV can say where it is");
  std::ofstream(folder.path() / "libbroken.so.1") << "no library";
  const auto broken = DynamicLibrary::Open("libbroken.so.1", search);
  EXPECT_EQ(broken.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(broken.status()).rfind("libbroken.so.1 does not load: ", 0), 0u);
  EXPECT_EQ(Message(broken.status()).find('\n'), std::string::npos);
}

TEST(DynamicLibrary, FindsFunctions) {
  const auto library = DynamicLibrary::Open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  const auto cosine = library->Symbol("cos");
  ASSERT_TRUE(cosine.ok());
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(*cosine)(0.0), 1.0);
  EXPECT_FALSE(library->Symbol("tessera_no_such_function").ok());
}

TEST(FastDivider, DividesEveryNumberBelowTwoToThe31) {
  for (const uint32_t d : {1u, 2u, 3u, 5u, 7u, 10u, 64u, 641u, 65535u, 65536u, 65537u, 1000003u,
                           (1u << 30) - 1, 1u << 30, (1u << 31) - 1}) {
    const FastDivider divider(d);
    for (uint64_t n = 0; n < (uint64_t{1} << 31); n = n * 17 / 16 + 1) {
      ASSERT_EQ(divider.Divide(static_cast<uint32_t>(n)), n / d) << n << " / " << d;
    }
    for (const uint64_t multiple : {uint64_t{d}, uint64_t{d} * 3, uint64_t{0x7fffffff} / d * d}) {
      for (const uint64_t n : {multiple - 1, multiple, multiple + 1}) {
        if (n >= (uint64_t{1} << 31)) continue;
        ASSERT_EQ(divider.Divide(static_cast<uint32_t>(n)), n / d) << n << " / " << d;
      }
    }
  }
}

// The offsets of element i by the definition.
template <int kOperands>
void CheckOffsets(const Shape& shape, const Shape* const (&strides)[kOperands]) {
  const StridedIndex<kOperands> index(shape, strides);
  StridedIndex<kOperands> wide = index;
  wide.narrow = false;
  ASSERT_EQ(index.numel, shape.numel());
  for (int64_t i = 0; i < shape.numel(); ++i) {
    int64_t at[kOperands];
    int64_t wide_at[kOperands];
    index.Offsets(i, at);
    wide.Offsets(i, wide_at);
    for (int k = 0; k < kOperands; ++k) {
      int64_t expected = 0;
      int64_t rest = i;
      for (int d = shape.ndim() - 1; d >= 0; --d) {
        expected += rest % shape[d] * (*strides[k])[d];
        rest /= shape[d];
      }
      ASSERT_EQ(at[k], expected) << shape << " element " << i;
      ASSERT_EQ(wide_at[k], expected) << shape << " element " << i;
    }
    for (const int v : {2, 4, 8}) {
      if (!index.CanVectorize(v) || i % v != 0) continue;
      int64_t group[kOperands];
      index.Vectorized(v).Offsets(i / v, group);
      for (int k = 0; k < kOperands; ++k) ASSERT_EQ(group[k], at[k]) << "group of " << v;
    }
  }
}

TEST(StridedIndex, GivesEveryElementsPlace) {
  const Shape shape{3, 4, 1, 8};
  const Shape plain = ContiguousStrides(shape);
  const Shape transposed{1, 24, 5, 3};
  const Shape row{0, 0, 0, 1};
  const Shape column{4, 1, 0, 0};
  CheckOffsets<3>(shape, {&plain, &transposed, &row});
  CheckOffsets<3>(shape, {&plain, &row, &column});
  CheckOffsets<1>(shape, {&plain});
  const Shape scalar;
  CheckOffsets<2>(scalar, {&scalar, &scalar});
  const Shape empty{3, 0, 2};
  const Shape empty_strides = ContiguousStrides(empty);
  EXPECT_EQ(StridedIndex<1>(empty, {&empty_strides}).numel, 0);
}

TEST(StridedIndex, MergesWhatEveryOperandAllows) {
  const Shape shape{3, 4, 8};
  const Shape plain = ContiguousStrides(shape);
  const Shape row{0, 0, 1};
  const StridedIndex<2> same(shape, {&plain, &plain});
  EXPECT_TRUE(same.contiguous());
  EXPECT_EQ(same.numel, 96);
  const StridedIndex<2> broadcast(shape, {&plain, &row});
  EXPECT_EQ(broadcast.ndim, 2);
  EXPECT_TRUE(broadcast.CanVectorize(8));
  EXPECT_FALSE(broadcast.CanVectorize(16));
  const Shape odd{10, 1};
  const Shape narrow_rows{9, 1};
  const Shape shape2{5, 8};
  EXPECT_FALSE((StridedIndex<2>(shape2, {&odd, &narrow_rows}).CanVectorize(8)));
}

TEST(StridedIndex, GroupsCoverEveryElementOnce) {
  for (const int64_t n : {1, 7, 8, 9, 64, 67}) {
    const Shape shape{n};
    const Shape plain{1};
    const Shape zero{0};
    std::vector<int> seen(static_cast<size_t>(n));
    const StridedIndex<2> index(shape, {&plain, &zero});
    LaunchGroups<8>(index, true, [&](auto group, const StridedIndex<2>& part, int64_t base) {
      for (int64_t i = 0; i < part.numel; ++i) {
        int64_t at[2];
        part.Offsets(i, at);
        EXPECT_EQ(at[1], 0);
        for (int k = 0; k < decltype(group)::value; ++k) ++seen[base + at[0] + k];
      }
    });
    for (const int count : seen) EXPECT_EQ(count, 1) << n;
  }
}

}  // namespace
}  // namespace tessera::cuda
