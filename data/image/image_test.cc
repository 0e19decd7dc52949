// SPDX-License-Identifier: Apache-2.0
// Pictures against what tests/parity/images.py recorded from PIL and transformers, and hostile
// files.
#include "data/image/image.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "core/safetensors.h"
#include "data/image/augment.h"
#include "data/image/decode.h"
#include "data/image/idx.h"
#include "data/image/image_processor.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr const char* kFolder = "data/image/testdata/";
constexpr const char* kFiles[] = {"rgb.jpg",  "progressive.jpg", "grey.jpg", "cmyk.jpg",
                                  "rgb.png",  "rgba.png",        "grey.png", "palette.png",
                                  "bits.png", "deep.png"};

const SafetensorsFile& Goldens() {
  static const auto* const file =
      new SafetensorsFile(*SafetensorsFile::Open(std::string(kFolder) + "goldens.safetensors"));
  return *file;
}

void ExpectPixels(const Image& image, const std::string& name) {
  const auto view = Goldens().Get(name);
  ASSERT_TRUE(view.ok()) << name;
  ASSERT_EQ(view->shape, (std::vector<int64_t>{image.height, image.width, image.channels})) << name;
  EXPECT_EQ(std::memcmp(view->data, image.pixels.data(), image.pixels.size()), 0) << name;
}

Image Load(const std::string& name) {
  auto image = ReadImage(kFolder + name);
  EXPECT_TRUE(image.ok()) << Message(image.status());
  return *std::move(image);
}

std::string Bytes(const std::string& name) { return *ReadFile(kFolder + name); }

TEST(ImageTest, FilesDecodeAsPilDoes) {
  for (const char* name : kFiles) ExpectPixels(Load(name), std::string("decoded.") + name);
  ExpectPixels(WithChannels(Load("rgb.png"), 1), "grey");
  const Image grey = Load("grey.png");
  const Image colour = WithChannels(grey, 3);
  EXPECT_EQ(colour.at(4, 7, 0), grey.at(4, 7, 0));
  EXPECT_EQ(colour.at(4, 7, 2), grey.at(4, 7, 0));
}

TEST(ImageTest, ResizedAsPilDoes) {
  int compared = 0;
  for (const auto& entry : Goldens().entries()) {
    if (entry.name.rfind("resized.", 0) != 0) continue;
    char kind[8];
    int filter = 0;
    int height = 0;
    int width = 0;
    ASSERT_EQ(
        std::sscanf(entry.name.c_str(), "resized.%7[a-z].%d.%dx%d", kind, &filter, &height, &width),
        4);
    ExpectPixels(
        Resize(Load(std::string(kind) + ".png"), height, width, static_cast<Resample>(filter)),
        entry.name);
    ++compared;
  }
  EXPECT_EQ(compared, 56);
}

TEST(ImageTest, ProcessedAsTransformersDoes) {
  for (const char* name : {"plain", "bicubic", "unscaled"}) {
    const auto processor = ImageProcessor::Load(std::string(kFolder) + name, 3);
    ASSERT_TRUE(processor.ok()) << Message(processor.status());
    std::vector<float> pixels(static_cast<size_t>(processor->OutputSize()));
    processor->Apply(Load("rgb.png"), pixels.data());
    const TensorView view = *Goldens().Get(std::string("processed.") + name);
    ASSERT_EQ(view.shape, (std::vector<int64_t>{3, processor->height(), processor->width()}));
    EXPECT_EQ(std::memcmp(view.data, pixels.data(), pixels.size() * sizeof(float)), 0) << name;
  }
}

TEST(ImageTest, CropsAndFlips) {
  const Image image{.height = 2, .width = 3, .channels = 1, .pixels = {1, 2, 3, 4, 5, 6}};
  using Pixels = std::vector<uint8_t>;
  EXPECT_EQ(Crop(image, {.top = 1, .left = 1, .height = 1, .width = 2}).pixels, (Pixels{5, 6}));
  EXPECT_EQ(FlipHorizontally(image).pixels, (Pixels{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(CenterCrop(image, 1, 1).pixels, Pixels{2});
  EXPECT_EQ(CenterCrop(image, 3, 2).pixels, (Pixels{0, 0, 1, 2, 4, 5}));
  EXPECT_EQ(PadBorder(image, 1).pixels,
            (Pixels{0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_THROW(Crop(image, {.top = 1, .left = 0, .height = 2, .width = 1}), Error);
}

// Every prefix and many damaged copies give a picture or one line; nothing else.
TEST(ImageTest, DamagedFilesGiveOneLine) {
  for (const char* name : kFiles) {
    const std::string bytes = Bytes(name);
    for (size_t length = 0; length < bytes.size(); length += 1 + length / 40) {
      const auto image = DecodeImage(bytes.substr(0, length), "cut.file");
      if (image.ok()) continue;  // only the end marker is missing
      EXPECT_EQ(Message(image.status()).rfind("cut.file: ", 0), 0u) << Message(image.status());
      EXPECT_EQ(Message(image.status()).find('\n'), std::string::npos);
    }
    EXPECT_FALSE(DecodeImage(bytes.substr(0, bytes.size() * 2 / 3), "cut").ok()) << name;
    const RandomKey key = RandomKey::FromSeed(1).With(name);
    for (uint64_t i = 0; i < 300; ++i) {
      std::string damaged = bytes;
      for (uint64_t j = 0; j < 1 + i % 5; ++j) {
        const uint32_t bits = RandomBits(key, i * 8 + j);
        damaged[bits % damaged.size()] = static_cast<char>(bits >> 24);
      }
      const auto image = DecodeImage(damaged, "damaged", {.max_pixels = 1 << 22});
      if (image.ok()) {
        EXPECT_EQ(static_cast<int64_t>(image->pixels.size()),
                  image->height * image->width * image->channels);
      }
    }
  }
  EXPECT_EQ(Message(DecodeImage("GIF89a", "x.gif").status()),
            "x.gif: not an image (JPEG and PNG are known)");
  for (const char* name : {"rgb.jpg", "rgb.png"}) {
    EXPECT_NE(Message(DecodeImage(Bytes(name), "big", {.max_pixels = 1000}).status())
                  .find("37 x 29 pixels are more than 1000"),
              std::string::npos);
  }
  EXPECT_FALSE(ReadImage("no-such-file.png").ok());
}

class IdxTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes, bool pack) {
    const std::string path = testing::TempDir() + "/" + name;
    if (!pack) {
      std::ofstream(path, std::ios::binary) << bytes;
      return path;
    }
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }
  const std::string images_ =
      std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03", 16) + "abcdefghijkl";
};

TEST_F(IdxTest, PlainAndGzipped) {
  for (const bool pack : {false, true}) {
    const auto array = ReadIdx(Write(pack ? "i.gz" : "i", images_, pack));
    ASSERT_TRUE(array.ok()) << Message(array.status());
    EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 2, 3}));
    const Image second = array->ImageAt(1);
    EXPECT_EQ(second.at(1, 0, 0), 'j');
    EXPECT_EQ(second.width, 3);
    EXPECT_THROW(array->ImageAt(2), Error);
  }
}

TEST_F(IdxTest, WhatIsWrongIsNamed) {
  const auto failure = [&](const std::string& bytes, bool pack = false) {
    const std::string path = Write("bad", bytes, pack);
    const auto array = ReadIdx(path, 1 << 20);
    EXPECT_FALSE(array.ok());
    const std::string message = Message(array.status());
    EXPECT_EQ(message.rfind(path + ": ", 0), 0u) << message;
    return message;
  };
  EXPECT_NE(failure(images_ + "x").find("13 bytes of elements; its header says 12"),
            std::string::npos);
  EXPECT_NE(failure("").find("not an IDX file"), std::string::npos);
  EXPECT_NE(failure(std::string("\0\0\x0D\x01\0\0\0\0", 8)).find("IDX type 13"), std::string::npos);
  EXPECT_NE(failure(std::string("\0\0\x08\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12))
                .find("more than 1048576 bytes"),
            std::string::npos);
  EXPECT_NE(failure(std::string(2 << 20, 'x'), true).find("more than 1048576 bytes"),
            std::string::npos);
  const std::string packed = *ReadFile(Write("whole.gz", images_, true));
  EXPECT_NE(failure(packed.substr(0, packed.size() - 6)).find("damaged"), std::string::npos);
  EXPECT_FALSE(ReadIdx("no-such-file.gz").ok());
}

TEST(ImageProcessorTest, ShortestEdgeAndCrop) {
  const auto config = ImageProcessorConfig::FromJson(
      {{"size", {{"shortest_edge", 10}}}, {"do_center_crop", true}, {"crop_size", 8}}, "p");
  ASSERT_TRUE(config.ok()) << Message(config.status());
  const auto processor = ImageProcessor::Create(*config, 1, "p");
  ASSERT_TRUE(processor.ok()) << Message(processor.status());
  EXPECT_EQ(processor->OutputSize(), 64);
  // A picture that is brighter to the right, 20 x 40, becomes 10 x 20; columns 6 ... 13 are left.
  Image image{.height = 20, .width = 40, .channels = 1, .pixels = {}};
  for (int i = 0; i < 800; ++i) image.pixels.push_back(static_cast<uint8_t>(i % 40 * 4));
  std::vector<float> out(64);
  processor->Apply(image, out.data());
  EXPECT_NEAR(out[0], (50.0 / 255 - 0.5) / 0.5, 0.01);  // columns 12 and 13: 4 * 12.5
  EXPECT_NEAR(out[7], (106.0 / 255 - 0.5) / 0.5, 0.01);
}

TEST(ImageProcessorTest, SizesOfAModel) {
  for (const nlohmann::json& size : {nlohmann::json(24), nlohmann::json({24, 24})}) {
    const auto processor = ImageProcessor::OfModel("no-such-folder", {{"image_size", size}});
    ASSERT_TRUE(processor.ok()) << Message(processor.status());
    EXPECT_EQ(processor->height(), 24) << size;
    EXPECT_EQ(processor->width(), 24) << size;
  }
}

TEST(ImageProcessorTest, WhatIsWrongIsNamed) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, nlohmann::json>>{
           {"size", "big"},
           {"size", -3},
           {"size", {{"longest_edge", 3}}},
           {"size", {{"height", 3}, {"width", nullptr}}},
           {"size", {{"shortest_edge", nullptr}}},
           {"resample", 5},
           {"do_pad", true},
           {"image_mean", "x"},
           {"image_std", {0.5, 0.0, 0.5}},
           {"do_resize", 1},
           {"image_processor_type", "CLIPImageProcessor"}}) {
    const auto config = ImageProcessorConfig::FromJson({{key, value}}, "p.json");
    EXPECT_NE(Message(config.status()).find(std::string("p.json: '") + key), std::string::npos)
        << key << Message(config.status());
  }
  EXPECT_FALSE(ImageProcessor::Create({.shortest_edge = 5}, 3, "p").ok());
  EXPECT_FALSE(ImageProcessor::Create({.image_mean = {0.1, 0.2}}, 3, "p").ok());
  EXPECT_FALSE(ImageProcessor::Create({.image_mean = {0.1, 0.2, 0.3}}, 1, "p").ok());
}

TEST(ImageProcessorTest, SavedAndLoadedAgain) {
  const auto processor = ImageProcessor::Load(std::string(kFolder) + "bicubic", 3);
  ASSERT_TRUE(processor.ok());
  const std::string folder = testing::TempDir() + "/processor";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(processor->Save(folder).ok());
  const auto again = ImageProcessor::Load(folder, 3);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->config().ToJson(), processor->config().ToJson());
}

TEST(AugmentTest, IsAFunctionOfSeedAndPosition) {
  const Image image = Load("rgb.png");
  const AugmentOptions options = {.height = 16, .width = 16, .min_area = 0.3, .border = 2};
  const auto pixels = [&](uint64_t seed, uint64_t position) {
    return Augment(image, options, AugmentKey(seed, position)).pixels;
  };
  EXPECT_EQ(pixels(1, 5), pixels(1, 5));
  EXPECT_NE(pixels(1, 5), pixels(1, 6));
  EXPECT_NE(pixels(1, 5), pixels(2, 5));
}

TEST(AugmentTest, FlipsAndBordersComeEvenly) {
  const Image image{.height = 1, .width = 2, .channels = 1, .pixels = {10, 20}};
  int flips = 0;
  int untouched = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const Image flipped = Augment(image, {.height = 1, .width = 2}, AugmentKey(3, i));
    flips += flipped.pixels[0] == 20;
    const Image moved = Augment(
        image, {.height = 1, .width = 2, .border = 1, .flip_probability = 0}, AugmentKey(3, i));
    untouched += moved.pixels == image.pixels;
  }
  EXPECT_NEAR(flips, 500, 80);      // 5 standard deviations
  EXPECT_NEAR(untouched, 111, 50);  // one of nine places
}

}  // namespace
}  // namespace tessera::data
