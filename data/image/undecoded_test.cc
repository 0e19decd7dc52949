// A program without decoders: linked with //data/image alone.
#include <gtest/gtest.h>

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
