// SPDX-License-Identifier: Apache-2.0
// JPEG through libjpeg. Its errors leave by longjmp, so nothing with a destructor is made between
// setjmp and the calls into the library.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
//
#include <jerror.h>
#include <jpeglib.h>

#include "data/image/decode.h"

namespace tessera::data {
namespace {

// A progressive file may ask for any number of passes over its pixels: so many, and so many pixels
// in all of them (about 2 s). Encoders make some ten passes.
constexpr int kMostScans = 500;
constexpr int64_t kMostScannedPixels = int64_t{1} << 33;

struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  bool ended_early;
  bool too_many_scans;
};

Decoder& Of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void Fail(j_common_ptr info) {
  info->err->format_message(info, Of(info).message);
  std::longjmp(Of(info).escape, 1);
}

// Warnings; the data continues, except where there is none.
void Hear(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) Of(info).ended_early = true;
}

void Quiet(j_common_ptr) {}

void Watch(j_common_ptr info) {
  Decoder& decoder = Of(info);
  if (!info->is_decompressor) return;
  const int64_t pixels = int64_t{decoder.info.image_width} * decoder.info.image_height;
  const int scans = decoder.info.input_scan_number;
  if (scans <= kMostScans && scans * pixels <= kMostScannedPixels) return;
  decoder.too_many_scans = true;
  std::longjmp(decoder.escape, 1);
}

void Begin(Decoder* decoder, std::string_view bytes) {
  decoder->info.err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = Fail;
  decoder->errors.emit_message = Hear;
  decoder->errors.output_message = Quiet;
  decoder->info.client_data = decoder;
  jpeg_create_decompress(&decoder->info);
  decoder->progress.progress_monitor = Watch;
  decoder->info.progress = &decoder->progress;
  jpeg_mem_src(&decoder->info, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));  // NOLINT: libjpeg's type
}

// Reads the header; false if the library gave up.
bool ReadHeader(Decoder* decoder) {
  if (setjmp(decoder->escape) != 0) return false;
  jpeg_read_header(&decoder->info, TRUE);
  jpeg_decompress_struct& info = decoder->info;
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    info.out_color_space = JCS_CMYK;
  } else if (info.num_components == 1) {
    info.out_color_space = JCS_GRAYSCALE;
  } else {
    info.out_color_space = JCS_RGB;
  }
  jpeg_calc_output_dimensions(&info);
  return true;
}

// Fills `pixels`, which has room for all rows.
bool ReadRows(Decoder* decoder, uint8_t* pixels) {
  if (setjmp(decoder->escape) != 0) return false;
  jpeg_decompress_struct& info = decoder->info;
  jpeg_start_decompress(&info);
  const size_t row = static_cast<size_t>(info.output_width) * info.output_components;
  while (info.output_scanline < info.output_height) {
    JSAMPROW at = pixels + row * info.output_scanline;
    jpeg_read_scanlines(&info, &at, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

// Four inks to red, green, blue; Adobe writes them inverted.
std::vector<uint8_t> FromInks(const std::vector<uint8_t>& inks, bool inverted) {
  std::vector<uint8_t> rgb;
  rgb.reserve(inks.size() / 4 * 3);
  for (size_t i = 0; i + 3 < inks.size(); i += 4) {
    const int left = inverted ? inks[i + 3] : 255 - inks[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int ink = inverted ? 255 - inks[i + c] : inks[i + c];
      const int product = ink * left + 128;
      rgb.push_back(static_cast<uint8_t>(left - (((product >> 8) + product) >> 8)));
    }
  }
  return rgb;
}

Status Problem(const Decoder& decoder, const std::string& source) {
  if (decoder.too_many_scans) {
    return InvalidArgument(source, ": a JPEG of more scans than its ", decoder.info.image_width,
                           " x ", decoder.info.image_height, " pixels warrant");
  }
  return DataLoss(source, ": damaged JPEG: ", decoder.message);
}

StatusOr<Image> Decode(Decoder* decoder, const std::string& source, int64_t max_pixels) {
  if (!ReadHeader(decoder)) return Problem(*decoder, source);
  Image image{.height = decoder->info.output_height,
              .width = decoder->info.output_width,
              .channels = decoder->info.out_color_components,
              .pixels = {}};
  if (image.height * image.width > max_pixels) {
    return InvalidArgument(source, ": ", image.width, " x ", image.height, " pixels are more than ",
                           max_pixels);
  }
  image.pixels.resize(static_cast<size_t>(image.height * image.width * image.channels));
  if (!ReadRows(decoder, image.pixels.data())) return Problem(*decoder, source);
  if (decoder->ended_early) return DataLoss(source, ": damaged JPEG: the file ends too early");
  if (image.channels == 4) {
    image.pixels = FromInks(image.pixels, decoder->info.saw_Adobe_marker);
    image.channels = 3;
  }
  return image;
}

StatusOr<Image> DecodeJpeg(std::string_view bytes, const std::string& source, int64_t max_pixels) {
  Decoder decoder{};
  // Making the decoder fails only for want of memory or a library of another version.
  if (setjmp(decoder.escape) != 0) return Internal(source, ": ", decoder.message);
  Begin(&decoder, bytes);
  StatusOr<Image> image = Decode(&decoder, source, max_pixels);
  jpeg_destroy_decompress(&decoder.info);
  return image;
}

const ImageDecoderRegistration registration(ImageFormat::kJpeg, DecodeJpeg);

}  // namespace
}  // namespace tessera::data
