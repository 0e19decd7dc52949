// SPDX-License-Identifier: Apache-2.0
#include "data/image/decode.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace tessera::data {
namespace {

// What is known of a kind of file without its decoder, which `target` is linked for.
struct Format {
  const char* name;
  const char* target;
  std::string_view first_bytes;
  ImageDecoder decoder = nullptr;
  int decoders = 0;
};

// By ImageFormat.
Format* Formats() {
  static Format formats[] = {{"JPEG", "//data/image:jpeg", "\xFF\xD8\xFF"},
                             {"PNG", "//data/image:png", "\x89PNG\r\n\x1A\n"}};
  return formats;
}

}  // namespace

ImageDecoderRegistration::ImageDecoderRegistration(ImageFormat format, ImageDecoder decoder) {
  Format& registered = Formats()[static_cast<int>(format)];
  registered.decoder = decoder;
  ++registered.decoders;
}

bool IsImageName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower.ends_with(".jpg") || lower.ends_with(".jpeg") || lower.ends_with(".png");
}

StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& source,
                            const ImageOptions& options) {
  for (const ImageFormat known : {ImageFormat::kJpeg, ImageFormat::kPng}) {
    const Format& format = Formats()[static_cast<int>(known)];
    if (!bytes.starts_with(format.first_bytes)) continue;
    TESSERA_CHECK(format.decoders <= 1, "images", "two decoders of ", format.name,
                  " are linked in");
    if (format.decoder == nullptr) {
      return InvalidArgument(source, ": this program is built without ", format.name, " (",
                             format.target, ")");
    }
    TESSERA_ASSIGN_OR_RETURN(Image image, format.decoder(bytes, source, options.max_pixels));
    return options.channels == 0 ? std::move(image) : WithChannels(image, options.channels);
  }
  return InvalidArgument(source, ": not an image (JPEG and PNG are known)");
}

StatusOr<Image> ReadImage(const std::string& path, const ImageOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return DecodeImage(bytes, path, options);
}

}  // namespace tessera::data
