// SPDX-License-Identifier: Apache-2.0
// A program without decoders: linked with //data/image alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "data/image/decode.h"
#include "data/image/image_processor.h"

namespace tessera::data {
namespace {

TEST(UndecodedTest, FilesAreRefusedByName) {
  const std::string folder = "data/image/testdata/";
  EXPECT_EQ(Message(ReadImage(folder + "rgb.jpg").status()),
            folder + "rgb.jpg: this program is built without JPEG (//data/image:jpeg)");
  EXPECT_EQ(Message(ReadImage(folder + "rgb.png").status()),
            folder + "rgb.png: this program is built without PNG (//data/image:png)");
  EXPECT_TRUE(IsImageName("rgb.jpg"));
}

// Registers both, reads a picture, and ends the process with what was told.
[[noreturn]] void RegisterAndRead(ImageFormat first, ImageFormat second) {
  const ImageDecoder decoder = [](std::string_view, const std::string&,
                                  int64_t) -> StatusOr<Image> { return Image(); };
  const ImageDecoderRegistration a(first, decoder);
  const ImageDecoderRegistration b(second, decoder);
  try {
    const auto image = ReadImage("data/image/testdata/rgb.png");
    std::fputs(image.ok() ? "read" : Message(image.status()).c_str(), stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(3);
}

TEST(UndecodedDeathTest, SecondDecodersAreToldWhereTheyAreNeeded) {
  EXPECT_EXIT(RegisterAndRead(ImageFormat::kJpeg, ImageFormat::kPng), testing::ExitedWithCode(3),
              "^read$");
  EXPECT_EXIT(RegisterAndRead(ImageFormat::kPng, ImageFormat::kPng), testing::ExitedWithCode(3),
              "^images: two decoders of PNG are linked in$");
}

TEST(UndecodedTest, PixelsAreProcessed) {
  const auto processor = ImageProcessor::Load("data/image/testdata/plain", 3);
  ASSERT_TRUE(processor.ok()) << Message(processor.status());
  const Image black{.height = 4, .width = 5, .channels = 1, .pixels = std::vector<uint8_t>(20, 0)};
  std::vector<float> values(static_cast<size_t>(processor->OutputSize()));
  processor->Apply(black, values.data());
  const ImageProcessorConfig& config = processor->config();
  EXPECT_EQ(values[0], static_cast<float>(-config.image_mean[0] / config.image_std[0]));
}

}  // namespace
}  // namespace tessera::data
