// SPDX-License-Identifier: Apache-2.0
/* The structs of tessera.h: name, size, and where the member stands that was the last of a version;
 * a line for each such member. */
#include <stdio.h>

#include "tessera.h"

#define LINE(type, last) printf("%s %zu %zu\n", #type, sizeof(type), offsetof(type, last))

int main(void) {
  LINE(tsr_allocator, user);
  LINE(tsr_configuration, threads);
  LINE(tsr_named_tensor, bytes);
  LINE(tsr_load_options, progress_user); /* 0.6.0 */
  LINE(tsr_load_options, weights);
  LINE(tsr_reader, user);
  LINE(tsr_model_info, image_width); /* 0.7.0 */
  LINE(tsr_model_info, embedding_size);
  LINE(tsr_model_info, num_end_tokens);
  LINE(tsr_tokenize_options, special_as_text);
  LINE(tsr_detokenize_options, skip_special);
  LINE(tsr_context_options, memory_limit); /* 0.6.0 */
  LINE(tsr_context_options, adapter);
  LINE(tsr_context_options, kept_texts);
  LINE(tsr_context_info, tokens_written);
  LINE(tsr_memory_info, reserved);
  LINE(tsr_forward_options, all_hidden_states);
  LINE(tsr_embed_options, normalise); /* 0.7.0 */
  LINE(tsr_embed_options, max_tokens);
  LINE(tsr_generate_options, seed); /* 0.7.0 */
  LINE(tsr_generate_options, settings);
  LINE(tsr_generate_options, json_schema);
  LINE(tsr_generate_options, logits_user);
  LINE(tsr_logprob, logprob);
  LINE(tsr_logits, sequence);
  LINE(tsr_token, end); /* 0.7.0 */
  LINE(tsr_token, sequence);
  LINE(tsr_token, num_top);
  LINE(tsr_blueprint, attention_layers);
  LINE(tsr_pass, logits);
  LINE(tsr_attention, window);
  LINE(tsr_family, user);
  return 0;
}
