// SPDX-License-Identifier: Apache-2.0
/* Teaches a language model a sentence, and runs the result: fine_tune MODEL NEW_MODEL
 *
 *   cc fine_tune.c $(pkg-config --cflags --libs tessera-training) -o fine_tune */
#include <stdio.h>
#include <string.h>

#include "tessera_training.h"

enum { kMostTokens = 64, kSteps = 10 };

/* The sentence as the model's tokens. */
static tsr_status* tokenize(const char* folder, const char* text, int64_t* ids, size_t* count) {
  tsr_model* model = NULL;
  tsr_status* status = tsr_model_load(folder, NULL, &model);
  if (status == NULL) status = tsr_tokenize(model, text, strlen(text), NULL, ids, kMostTokens, count);
  tsr_status_release(tsr_model_release(model));
  return status;
}

static tsr_status* train(const char* folder, const tsr_named_tensor* batch, size_t tensors,
                         const char* out, double* first) {
  tsr_train_options options = {.size = sizeof(options)};
  options.learning_rate = 1e-3;
  options.max_grad_norm = 1;
  tsr_trainer* trainer = NULL;
  tsr_status* status = tsr_train_create(folder, &options, &trainer);
  for (int step = 1; status == NULL && step <= kSteps; ++step) {
    double loss = 0;
    status = tsr_train_step(trainer, batch, tensors, &loss);
    if (status == NULL) printf("step %d: loss %.4f\n", step, loss);
    if (step == 1) *first = loss;
  }
  if (status == NULL) status = tsr_train_save(trainer, out);
  tsr_status_release(tsr_train_release(trainer));
  return status;
}

/* The loss of the model that was written, by the same calls as of any other. */
static tsr_status* evaluate(const char* folder, const tsr_named_tensor* batch, size_t tensors,
                            double* loss) {
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  tsr_named_tensor* outputs = NULL;
  size_t count = 0;
  tsr_status* status = tsr_model_load(folder, NULL, &model);
  if (status == NULL) status = tsr_context_create(model, NULL, &context);
  if (status == NULL) status = tsr_forward(context, batch, tensors, &outputs, &count);
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(outputs[i].name, "loss") == 0) *loss = *(const float*)outputs[i].data;
  }
  tsr_status_release(tsr_tensors_release(outputs));
  tsr_status_release(tsr_context_release(context));
  tsr_status_release(tsr_model_release(model));
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL NEW_MODEL\n", argv[0]);
    return 2;
  }
  int64_t ids[kMostTokens];
  size_t count = 0;
  double before = 0, after = 0;
  tsr_status* status = tokenize(argv[1], "To be, or not to be", ids, &count);
  const int64_t shape[] = {1, (int64_t)count};
  const tsr_named_tensor batch[] = {
      {"input_ids", TSR_INT64, 2, shape, ids, count * sizeof(*ids)},
      {"labels", TSR_INT64, 2, shape, ids, count * sizeof(*ids)}}; /* the model shifts them */
  if (status == NULL) status = train(argv[1], batch, 2, argv[2], &before);
  if (status == NULL) status = evaluate(argv[2], batch, 2, &after);
  if (status == NULL) printf("written to %s: loss %.4f\n", argv[2], after);

  const int failed = status != NULL;
  if (failed) fprintf(stderr, "error: %s\n", tsr_status_message(status));
  tsr_status_release(status);
  return failed || !(after < before);
}
