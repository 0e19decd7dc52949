/* The structs of tessera.h, a line each: name, size, and where its last member stands. */
#include <stdio.h>

#include "tessera.h"

#define LINE(type, last) printf("%s %zu %zu\n", #type, sizeof(type), offsetof(type, last))

int main(void) {
  LINE(tsr_allocator, user);
  LINE(tsr_configuration, threads);
  LINE(tsr_named_tensor, bytes);
  LINE(tsr_load_options, progress_user);
  LINE(tsr_reader, user);
  LINE(tsr_model_info, image_width);
  LINE(tsr_tokenize_options, special_as_text);
  LINE(tsr_detokenize_options, skip_special);
  LINE(tsr_context_options, memory_limit);
  LINE(tsr_forward_options, all_hidden_states);
  LINE(tsr_embed_options, normalise);
  LINE(tsr_generate_options, seed);
  LINE(tsr_token, end);
  return 0;
}
