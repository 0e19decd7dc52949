// SPDX-License-Identifier: Apache-2.0
// Random crops and mirror images for training: a function of (seed, position), so that every rank,
// a resumed run and any number of loading threads see the same pictures.
//
//   const Image picked = Augment(image, {.height = 224, .width = 224}, AugmentKey(seed, position));
//   processor.Convert(picked, pixels);
#ifndef TESSERA_DATA_IMAGE_AUGMENT_H_
#define TESSERA_DATA_IMAGE_AUGMENT_H_

#include <cstdint>

#include "core/random.h"
#include "data/image/image.h"

namespace tessera::data {

struct AugmentOptions {
  int64_t height = 0;  // of the result; required
  int64_t width = 0;
  Resample resample = Resample::kBilinear;
  // Share of the picture's area that the crop has, drawn evenly from here up to 1 (Szegedy et al.
  // 2014), of an aspect ratio between 3/4 and 4/3; 1: no such crop, the whole is resized.
  double min_area = 1.0;
  // Black border put around the resized picture, out of which a crop of the result's size is taken
  // (what is done with 28 x 28 and 32 x 32 pictures).
  int64_t border = 0;
  double flip_probability = 0.5;
};

// The key of the sample at `position` of the data's order (epochs go on counting).
RandomKey AugmentKey(uint64_t seed, uint64_t position);

// height x width, with the picture's channels.
Image Augment(const Image& image, const AugmentOptions& options, const RandomKey& key);

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_AUGMENT_H_
