// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

class TensorFilesTest : public testing::Test {
 protected:
  ~TensorFilesTest() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "tensor_files_test.safetensors";
};

TEST_F(TensorFilesTest, EveryDTypeAndStrideComesBack) {
  std::map<std::string, Tensor> saved;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    saved[std::string(DTypeName(dtype))] = CastCopy(Arange(6), dtype);
  }
  const Tensor matrix = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  saved["transposed"] = matrix.AsStrided({3, 2}, {1, 3}, 0);
  saved["number"] = Tensor::Scalar(2.5);
  saved["empty"] = Zeros({0, 4});
  ASSERT_TRUE(SaveTensors(path_, saved).ok());
  const auto loaded = LoadTensors(path_);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    const Tensor& back = loaded->at(name);
    EXPECT_EQ(back.shape(), tensor.shape()) << name;
    EXPECT_EQ(back.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(back.ToVector<double>(), tensor.ToVector<double>()) << name;
  }
  EXPECT_EQ(loaded->at("transposed").ToVector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST_F(TensorFilesTest, RefusesByName) {
  EXPECT_NE(SaveTensors(path_, {{"w", Tensor()}}).message().find("'w'"), std::string::npos);
  const Tensor planned = Empty({2}, DType::kFloat32, Device::Meta());
  EXPECT_NE(SaveTensors(path_, {{"p", planned}}).message().find("'p'"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(LoadTensors(path_).ok());
  std::ofstream(path_) << "no tensors";
  EXPECT_NE(LoadTensors(path_).status().message().find(path_), std::string::npos);
}

}  // namespace
}  // namespace tessera
