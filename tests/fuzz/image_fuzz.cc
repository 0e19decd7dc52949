// Pictures: PNG, JPEG, IDX (data/image/).
#include <string>
#include <string_view>
#include <vector>

#include "data/image/decode.h"
#include "data/image/idx.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

const std::string kData = "data/image/testdata/";

void Run(std::string_view bytes) {
  data::DecodeImage(bytes, "input", {.channels = 3, .max_pixels = 1 << 22}).status().IgnoreError();
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

void RunIdx(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("images", bytes);
  const auto array = data::ReadIdx(folder.Path("images"), 1 << 24);
  if (array.ok() && array->shape.size() == 3 && array->shape[0] > 0) {
    array->ImageAt(array->shape[0] - 1);
  }
}

std::vector<std::string> IdxSeeds() {
  const std::string images("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02pixelsof", 24);
  const std::string labels("\0\0\x08\x01\0\0\0\x03\x01\x02\x03", 11);
  // Two labels, gzipped.
  const std::string packed(
      "\x1f\x8b\x08\0\0\0\0\0\0\x03\x63\x60\xe0\x60\x04\x42\x26\x46\x66\0\x1b\xbb\x76\x23\x0a\0\0"
      "\0",
      28);
  return {images, labels, packed};
}

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
