// SPDX-License-Identifier: Apache-2.0
// Pictures: PNG, JPEG, IDX, and what is to be done with them (data/image/).
#include <string>
#include <string_view>
#include <vector>

#include "data/image/decode.h"
#include "data/image/idx.h"
#include "data/image/image_processor.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

const std::string kData = "data/image/testdata/";

bool Run(std::string_view bytes) {
  return data::DecodeImage(bytes, "input", {.channels = 3, .max_pixels = 1 << 22}).ok();
}

std::vector<std::string> PngSeeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"bits", "deep", "grey", "palette", "rgb", "rgba"}) {
    seeds.push_back(FileOf(kData + name + ".png"));
  }
  return seeds;
}

std::vector<std::string> JpegSeeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"cmyk", "grey", "progressive", "rgb"}) {
    seeds.push_back(FileOf(kData + name + ".jpg"));
  }
  return seeds;
}

bool RunIdx(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("images", bytes);
  const auto array = data::ReadIdx(folder.Path("images"), 1 << 24);
  if (array.ok() && array->shape.size() == 3 && array->shape[0] > 0) {
    array->ImageAt(array->shape[0] - 1);
  }
  return array.ok();
}

std::vector<std::string> IdxSeeds() {
  const std::string images("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02pixelsof", 24);
  const std::string labels("\0\0\x08\x01\0\0\0\x03\x01\x02\x03", 11);
  // Two labels, gzipped.
  const std::string packed(
      "\x1f\x8b\x08\0\0\0\0\0\x02\xff\x63\x60\xe0\x60\x64\x60\x60\x60\x62\x66\x01\0\xc3\x3b\xdc"
      "\xb9\x0a\0\0\0",
      30);
  return {images, labels, packed};
}

bool RunProcessor(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("preprocessor_config.json", bytes);
  const auto processor = data::ImageProcessor::Load(folder.path(), 3);
  if (!processor.ok() || processor->OutputSize() > 1 << 20) return false;
  const data::Image image = {
      .height = 5, .width = 7, .channels = 3, .pixels = std::vector<uint8_t>(105, 9)};
  std::vector<float> out(static_cast<size_t>(processor->OutputSize()));
  processor->Apply(image, out.data());
  return true;
}

std::vector<std::string> ProcessorSeeds() {
  return {R"({"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8},)"
          R"( "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.5], "resample": 2})",
          R"({"size": {"shortest_edge": 9}, "do_center_crop": true, "crop_size": 8, "resample": 3,)"
          R"( "do_rescale": false})"};
}

const FuzzTargetRegistration processor({.name = "image_processor",
                                        .run = RunProcessor,
                                        .seeds = ProcessorSeeds,
                                        .words = {"size", "height", "shortest_edge", "crop_size",
                                                  "do_normalize", "rescale_factor", "1e308",
                                                  "9223372036854775807", "-1"}});
const FuzzTargetRegistration png({.name = "png",
                                  .run = Run,
                                  .seeds = PngSeeds,
                                  .words = {"IHDR", "PLTE", "IDAT", "IEND", "tRNS", "gAMA", "iCCP",
                                            "\x89PNG\r\n\x1a\n"}});
const FuzzTargetRegistration jpeg({.name = "jpeg",
                                   .run = Run,
                                   .seeds = JpegSeeds,
                                   .words = {"\xff\xd8\xff", "\xff\xc0", "\xff\xc2", "\xff\xc4",
                                             "\xff\xda", "\xff\xdb", "\xff\xdd", "\xff\xd9",
                                             "Adobe", "JFIF"}});
const FuzzTargetRegistration idx(
    {.name = "idx", .run = RunIdx, .seeds = IdxSeeds, .words = {"\x1f\x8b\x08"}});

}  // namespace
}  // namespace tessera::fuzz
