// SPDX-License-Identifier: Apache-2.0
/* How alike two sentences are: similar MODEL SENTENCE SENTENCE
 *
 * The cosine of the angle between their embeddings, -1 to 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera.h"

enum { kMostTokens = 512 };

static tsr_status* embed(const tsr_model* model, tsr_context* context, const char* sentence,
                         float* vector, size_t size) {
  int64_t ids[kMostTokens];
  size_t count = 0;
  tsr_embed_options options = {.size = sizeof(options)};
  options.pooling = TSR_POOLING_MEAN;
  options.normalise = 1;
  tsr_status* status =
      tsr_tokenize(model, sentence, strlen(sentence), NULL, ids, kMostTokens, &count);
  if (status == NULL) status = tsr_embed(context, ids, count, &options, vector, size);
  return status;
}

int main(int argc, char** argv) {
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  tsr_model_info info = {.size = sizeof(info)};
  if (argc < 4) {
    fprintf(stderr, "usage: %s MODEL SENTENCE SENTENCE\n", argv[0]);
    return 2;
  }

  tsr_status* status = tsr_model_load(argv[1], NULL, &model);
  if (status == NULL) status = tsr_context_create(model, NULL, &context);
  if (status == NULL) status = tsr_model_describe(model, &info);
  const size_t size = (size_t)info.hidden_size;
  float* vectors = malloc(2 * size * sizeof(float) + 1);
  if (status == NULL) status = embed(model, context, argv[2], vectors, size);
  if (status == NULL) status = embed(model, context, argv[3], vectors + size, size);
  if (status == NULL) {
    double cosine = 0;
    for (size_t i = 0; i < size; ++i) cosine += (double)vectors[i] * vectors[size + i];
    printf("%.4f\n", cosine);
  }

  const int failed = status != NULL;
  if (failed) fprintf(stderr, "error: %s\n", tsr_status_message(status));
  free(vectors);
  tsr_status_release(status);
  tsr_status_release(tsr_context_release(context));
  tsr_status_release(tsr_model_release(model));
  return failed;
}
