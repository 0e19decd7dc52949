// SPDX-License-Identifier: Apache-2.0
// Decodes pictures and makes `pixel_values` of them: for tests/parity/images.py.
//
//   preprocess_image FOLDER_WITH_PREPROCESSOR_CONFIG OUT.safetensors PICTURE...
#include <iostream>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "data/image/decode.h"
#include "data/image/image_processor.h"

int main(int argc, char** argv) {
  using tessera::data::ImageProcessor;
  if (argc < 4) {
    std::cerr << "error: usage: preprocess_image FOLDER OUT.safetensors PICTURE...\n";
    return 2;
  }
  const auto process = [&]() -> tessera::Status {
    TESSERA_ASSIGN_OR_RETURN(const ImageProcessor processor, ImageProcessor::Load(argv[1], 3));
    const int64_t size = processor.OutputSize();
    const int64_t count = argc - 3;
    std::vector<float> pixels(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < count; ++i) {
      TESSERA_ASSIGN_OR_RETURN(const tessera::data::Image image,
                               tessera::data::ReadImage(argv[3 + i]));
      processor.Apply(image, pixels.data() + i * size);
    }
    const std::vector<int64_t> shape = {count, 3, processor.height(), processor.width()};
    return tessera::WriteSafetensors(
        argv[2],
        {{"pixel_values",
          {tessera::DType::kFloat32, shape, reinterpret_cast<const std::byte*>(pixels.data()),
           static_cast<int64_t>(pixels.size() * sizeof(float))}}});
  };
  const tessera::Status status = process();
  if (!status.ok()) std::cerr << "error: " << tessera::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
