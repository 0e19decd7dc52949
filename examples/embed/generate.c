// SPDX-License-Identifier: Apache-2.0
/* Continues a prompt, token by token: generate MODEL [PROMPT]
 *
 *   cc generate.c $(pkg-config --cflags --libs tessera) -o generate */
#include <stdio.h>
#include <string.h>

#include "tessera.h"

static int show(void* user, const tsr_token* token) {
  (void)user;
  fwrite(token->text, 1, token->length, stdout);
  fflush(stdout);
  return 0;
}

int main(int argc, char** argv) {
  const char* prompt = argc > 2 ? argv[2] : "Once";
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  tsr_generate_options options = {.size = sizeof(options)};
  options.max_new_tokens = 20;
  options.sampling = TSR_SAMPLING_OFF;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL [PROMPT]\n", argv[0]);
    return 2;
  }

  tsr_status* status = tsr_model_load(argv[1], NULL, &model);
  if (status == NULL) status = tsr_context_create(model, NULL, &context);
  if (status == NULL) printf("%s", prompt);
  if (status == NULL) {
    status = tsr_generate_text(context, prompt, strlen(prompt), &options, show, NULL);
  }
  if (status == NULL) printf("\n");

  const int failed = status != NULL;
  if (failed) fprintf(stderr, "error: %s\n", tsr_status_message(status));
  tsr_status_release(status);
  tsr_status_release(tsr_context_release(context));
  tsr_status_release(tsr_model_release(model));
  return failed;
}
