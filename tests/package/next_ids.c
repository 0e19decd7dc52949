// SPDX-License-Identifier: Apache-2.0
/* Prints two token ids and those that a model goes on with, as `tessera generate --ids 72,105
 * --max-new-tokens 3` does: next_ids MODEL */
#include <inttypes.h>
#include <stdio.h>
#include <tessera.h>

static int print_id(void* user, const tsr_token* token) {
  (void)user;
  if (token->id >= 0) printf(",%" PRId64, token->id);
  return 0;
}

int main(int argc, char** argv) {
  const int64_t ids[] = {72, 105};
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  tsr_generate_options options = {0};
  tsr_status* status;
  int code;
  if (argc != 2) return 2;
  options.size = sizeof options;
  options.max_new_tokens = 3;
  status = tsr_model_load(argv[1], NULL, &model);
  if (status == NULL) status = tsr_context_create(model, NULL, &context);
  if (status == NULL) {
    printf("72,105");
    status = tsr_generate(context, ids, 2, &options, print_id, NULL);
    printf("\n");
  }
  code = tsr_status_code(status);
  if (status != NULL) fprintf(stderr, "error: %s\n", tsr_status_message(status));
  tsr_status_release(status);
  tsr_status_release(tsr_context_release(context));
  tsr_status_release(tsr_model_release(model));
  return code;
}
