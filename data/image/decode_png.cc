// SPDX-License-Identifier: Apache-2.0
// PNG through libpng. Its errors leave by longjmp, so nothing with a destructor is made between
// setjmp and the calls into the library.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "data/image/decode.h"

namespace tessera::data {
namespace {

constexpr png_alloc_size_t kMostChunkBytes = 8 << 20;

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* bytes = nullptr;
  size_t left = 0;
  std::jmp_buf escape;
  char message[128] = "";
};

[[noreturn]] void Fail(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message, sizeof(decoder->message), "%s", message);
  std::longjmp(decoder->escape, 1);
}

void Quiet(png_structp, png_const_charp) {}

void Read(png_structp png, png_bytep to, size_t count) {
  auto* decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder->left) png_error(png, "the file ends too early");
  std::memcpy(to, decoder->bytes, count);
  decoder->bytes += count;
  decoder->left -= count;
}

// Reads the header and asks for 8-bit grey or red, green, blue; false if the library gave up.
bool ReadHeader(Decoder* decoder) {
  if (setjmp(decoder->escape) != 0) return false;
  png_structp png = decoder->png;
  png_set_read_fn(png, decoder, Read);
  png_set_chunk_malloc_max(png, kMostChunkBytes);
  png_set_chunk_cache_max(png, 128);
  png_read_info(png, decoder->info);
  const int color = png_get_color_type(png, decoder->info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, decoder->info);
  return true;
}

bool ReadRows(Decoder* decoder, uint8_t** rows) {
  if (setjmp(decoder->escape) != 0) return false;
  png_read_image(decoder->png, rows);
  png_read_end(decoder->png, nullptr);
  return true;
}

StatusOr<Image> Decode(Decoder* decoder, const std::string& source, int64_t max_pixels) {
  const auto damaged = [&] { return DataLoss(source, ": damaged PNG: ", decoder->message); };
  if (!ReadHeader(decoder)) return damaged();
  Image image{.height = png_get_image_height(decoder->png, decoder->info),
              .width = png_get_image_width(decoder->png, decoder->info),
              .channels = png_get_channels(decoder->png, decoder->info),
              .pixels = {}};
  if (image.width > max_pixels / std::max<int64_t>(image.height, 1)) {
    return InvalidArgument(source, ": ", image.width, " x ", image.height, " pixels are more than ",
                           max_pixels);
  }
  const auto row = static_cast<size_t>(image.width * image.channels);
  if (png_get_rowbytes(decoder->png, decoder->info) != row) {
    return Internal(source, ": rows of ", png_get_rowbytes(decoder->png, decoder->info),
                    " bytes for ", image.width, " pixels");
  }
  image.pixels.resize(row * static_cast<size_t>(image.height));
  std::vector<uint8_t*> rows(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + y * row;
  if (!ReadRows(decoder, rows.data())) return damaged();
  return image;
}

StatusOr<Image> DecodePng(std::string_view bytes, const std::string& source, int64_t max_pixels) {
  Decoder decoder;
  decoder.bytes = bytes.data();
  decoder.left = bytes.size();
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, Fail, Quiet);
  decoder.info = decoder.png == nullptr ? nullptr : png_create_info_struct(decoder.png);
  StatusOr<Image> image = decoder.info == nullptr
                              ? StatusOr<Image>(Internal(source, ": no PNG decoder"))
                              : Decode(&decoder, source, max_pixels);
  if (decoder.png != nullptr) png_destroy_read_struct(&decoder.png, &decoder.info, nullptr);
  return image;
}

const ImageDecoderRegistration registration(ImageFormat::kPng, DecodePng);

}  // namespace
}  // namespace tessera::data
