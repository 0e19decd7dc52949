// SPDX-License-Identifier: Apache-2.0
/* Says what a picture shows: classify MODEL PICTURE.ppm
 *
 * Pictures are binary PPM, as `convert cat.jpg cat.ppm` writes them; a program of your own gives the
 * pixels that it has. */
#include <stdio.h>
#include <stdlib.h>

#include "tessera.h"

/* [height][width][3]; NULL where the file is no such picture. */
static unsigned char* read_ppm(const char* path, int* height, int* width) {
  unsigned char* pixels = NULL;
  int most = 0;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  if (fscanf(file, "P6 %d %d %d", width, height, &most) == 3 && most == 255 && *width > 0 &&
      *height > 0 && *width <= 16384 && *height <= 16384) {
    const size_t size = (size_t)*height * (size_t)*width * 3;
    pixels = malloc(size);
    fgetc(file); /* the one blank behind the header */
    if (pixels != NULL && fread(pixels, 1, size, file) != size) {
      free(pixels);
      pixels = NULL;
    }
  }
  fclose(file);
  return pixels;
}

static tsr_status* classify(tsr_model* model, tsr_context* context, const unsigned char* pixels,
                            int height, int width) {
  tsr_model_info info = {.size = sizeof(info)};
  tsr_named_tensor* out = NULL;
  size_t count = 0, outputs = 0;
  float* values = NULL;
  tsr_status* status = tsr_model_describe(model, &info);
  if (status == NULL) {
    status = tsr_pixel_values(model, pixels, height, width, 3, NULL, 0, &count);
  }
  if (status == NULL) {
    values = malloc(count * sizeof(float));
    status = tsr_pixel_values(model, pixels, height, width, 3, values, count, &count);
  }
  if (status == NULL) {
    const int64_t shape[] = {1, info.image_channels, info.image_height, info.image_width};
    const tsr_named_tensor in = {"pixel_values", TSR_FLOAT32, 4,
                                 shape,          values,      count * sizeof(float)};
    status = tsr_forward(context, &in, 1, &out, &outputs);
  }
  for (size_t i = 0; status == NULL && i < outputs; ++i) {
    if (out[i].name[0] != 'l' || out[i].name[1] != 'o' || out[i].rank != 2) continue; /* logits */
    const float* logits = out[i].data;
    int64_t best = 0;
    for (int64_t label = 1; label < info.labels; ++label) {
      if (logits[label] > logits[best]) best = label;
    }
    printf("%s\n", tsr_model_label(model, best));
  }
  tsr_status_release(tsr_tensors_release(out));
  free(values);
  return status;
}

int main(int argc, char** argv) {
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  int height = 0, width = 0;
  unsigned char* pixels = argc > 2 ? read_ppm(argv[2], &height, &width) : NULL;
  if (pixels == NULL) {
    fprintf(stderr, "usage: %s MODEL PICTURE.ppm (8 bits a sample)\n", argv[0]);
    return 2;
  }

  tsr_status* status = tsr_model_load(argv[1], NULL, &model);
  if (status == NULL) status = tsr_context_create(model, NULL, &context);
  if (status == NULL) status = classify(model, context, pixels, height, width);

  const int failed = status != NULL;
  if (failed) fprintf(stderr, "error: %s\n", tsr_status_message(status));
  tsr_status_release(status);
  tsr_status_release(tsr_context_release(context));
  tsr_status_release(tsr_model_release(model));
  free(pixels);
  return failed;
}
