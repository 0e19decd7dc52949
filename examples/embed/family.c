// SPDX-License-Identifier: Apache-2.0
/* A family of one's own as a shared object: Llama's layers in C, to change into what is wanted.
 *
 *   cc -std=c99 -O2 -shared -fPIC family.c $(pkg-config --cflags --libs tessera) -lm -o family.so
 *
 * A host opens it (dlopen) and calls register_my_llama; then it loads folders whose config.json
 * says "model_type": "my_llama".
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera.h"

#define TRY(call)                                      \
  do {                                                 \
    tsr_status* status_of_call = (call);               \
    if (status_of_call != NULL) return status_of_call; \
  } while (0)

/* Numbers of parameters. */
typedef struct layer {
  int64_t attention_norm, q, k, v, o;
  int64_t mlp_norm, gate, up, down;
} layer;

typedef struct llama {
  int64_t vocab, width, inner, num_layers, heads, key_value_heads, head_dim;
  double eps, base;
  int64_t table, norm, head;
  layer* layers;
} llama;

static void release(void* user, void* model) {
  (void)user;
  if (model != NULL) free(((llama*)model)->layers);
  free(model);
}

/* ---- What a config.json declares ------------------------------------------------------------- */

static tsr_status* matrix(const tsr_blueprint* blueprint, const char* name, int64_t rows,
                          int64_t columns, int64_t* parameter) {
  const int64_t shape[2] = {rows, columns};
  return tsr_blueprint_parameter(blueprint, name, shape, columns == 0 ? 1 : 2, parameter);
}

/* A parameter of layer `i`; a vector where `columns` is 0. */
static tsr_status* of_layer(const tsr_blueprint* blueprint, int64_t i, const char* name,
                            int64_t rows, int64_t columns, int64_t* parameter) {
  char full[96];
  snprintf(full, sizeof(full), "model.layers.%d.%s.weight", (int)i, name);
  return matrix(blueprint, full, rows, columns, parameter);
}

static tsr_status* read_config(tsr_blueprint* blueprint, llama* m) {
  TRY(tsr_blueprint_integer(blueprint, "vocab_size", &m->vocab));
  TRY(tsr_blueprint_integer(blueprint, "hidden_size", &m->width));
  TRY(tsr_blueprint_integer(blueprint, "intermediate_size", &m->inner));
  TRY(tsr_blueprint_integer(blueprint, "num_hidden_layers", &m->num_layers));
  TRY(tsr_blueprint_integer(blueprint, "num_attention_heads", &m->heads));
  m->key_value_heads = m->heads;
  TRY(tsr_blueprint_integer(blueprint, "num_key_value_heads", &m->key_value_heads));
  TRY(tsr_blueprint_integer(blueprint, "max_position_embeddings", &blueprint->max_positions));
  m->eps = 1e-6;
  TRY(tsr_blueprint_number(blueprint, "rms_norm_eps", &m->eps));
  m->base = 10000;
  TRY(tsr_blueprint_number(blueprint, "rope_theta", &m->base));
  const char* activation = "silu";
  TRY(tsr_blueprint_text(blueprint, "hidden_act", &activation));
  if (strcmp(activation, "silu") != 0) {
    return tsr_status_create(TSR_INVALID_ARGUMENT, "'hidden_act' is not silu");
  }
  if (m->num_layers < 1 || m->num_layers > 1000 || m->heads < 1 || m->width % m->heads != 0 ||
      m->width / m->heads % 2 != 0) {
    return tsr_status_create(TSR_INVALID_ARGUMENT,
                             "num_hidden_layers is 1 to 1000, and hidden_size an even multiple of "
                             "num_attention_heads");
  }
  m->head_dim = m->width / m->heads;
  blueprint->vocab_size = m->vocab;
  blueprint->attention_layers = m->num_layers;
  return NULL;
}

static tsr_status* declare(tsr_blueprint* blueprint, llama* m) {
  TRY(read_config(blueprint, m));
  m->layers = calloc((size_t)m->num_layers, sizeof(layer));
  if (m->layers == NULL) return tsr_status_create(TSR_RESOURCE_EXHAUSTED, "no memory is left");
  TRY(matrix(blueprint, "model.embed_tokens.weight", m->vocab, m->width, &m->table));
  const int64_t kv = m->key_value_heads * m->head_dim;
  for (int64_t i = 0; i < m->num_layers; ++i) {
    layer* const l = &m->layers[i];
    TRY(of_layer(blueprint, i, "input_layernorm", m->width, 0, &l->attention_norm));
    TRY(of_layer(blueprint, i, "self_attn.q_proj", m->width, m->width, &l->q));
    TRY(of_layer(blueprint, i, "self_attn.k_proj", kv, m->width, &l->k));
    TRY(of_layer(blueprint, i, "self_attn.v_proj", kv, m->width, &l->v));
    TRY(of_layer(blueprint, i, "self_attn.o_proj", m->width, m->width, &l->o));
    TRY(of_layer(blueprint, i, "post_attention_layernorm", m->width, 0, &l->mlp_norm));
    TRY(of_layer(blueprint, i, "mlp.gate_proj", m->inner, m->width, &l->gate));
    TRY(of_layer(blueprint, i, "mlp.up_proj", m->inner, m->width, &l->up));
    TRY(of_layer(blueprint, i, "mlp.down_proj", m->width, m->inner, &l->down));
  }
  TRY(matrix(blueprint, "model.norm.weight", m->width, 0, &m->norm));
  int tied = 0;
  TRY(tsr_blueprint_flag(blueprint, "tie_word_embeddings", &tied));
  m->head = m->table;
  return tied ? NULL : matrix(blueprint, "lm_head.weight", m->vocab, m->width, &m->head);
}

static tsr_status* build(void* user, tsr_blueprint* blueprint, void** model) {
  llama* const m = calloc(1, sizeof(llama));
  if (m == NULL) return tsr_status_create(TSR_RESOURCE_EXHAUSTED, "no memory is left");
  tsr_status* const status = declare(blueprint, m);
  if (status != NULL) {
    release(user, m);
  } else {
    *model = m;
  }
  return status;
}

/* ---- What it computes: n tokens of `width` numbers ------------------------------------------- */

/* RMS norm (Zhang and Sennrich 2019). */
static void norm(const llama* m, const float* weight, const float* x, int64_t n, float* y) {
  for (int64_t t = 0; t < n; ++t, x += m->width, y += m->width) {
    double squares = 0;
    for (int64_t i = 0; i < m->width; ++i) squares += (double)x[i] * x[i];
    const double scale = 1 / sqrt(squares / (double)m->width + m->eps);
    for (int64_t i = 0; i < m->width; ++i) y[i] = (float)(x[i] * scale) * weight[i];
  }
}

/* Rotary positions (Su et al. 2021), of `heads` heads of each token. */
static void rotate(const llama* m, const int64_t* positions, int64_t n, int64_t heads, float* x) {
  const int64_t half = m->head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = pow(m->base, -(double)i / (double)half);
    for (int64_t t = 0; t < n; ++t) {
      const float c = (float)cos((double)positions[t] * frequency);
      const float s = (float)sin((double)positions[t] * frequency);
      for (int64_t h = 0; h < heads; ++h) {
        float* const pair = x + (t * heads + h) * m->head_dim + i;
        const float a = pair[0];
        const float b = pair[half];
        pair[0] = a * c - b * s;
        pair[half] = b * c + a * s;
      }
    }
  }
}

static void add(const float* y, int64_t count, float* x) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

typedef struct room {
  float *x, *y, *q, *k, *v, *gate, *up;
} room;

static tsr_status* run_layer(const llama* m, int64_t i, const tsr_pass* pass, const room* r) {
  const layer* const l = &m->layers[i];
  const int64_t n = pass->rows * pass->tokens;
  norm(m, pass->parameters[l->attention_norm], r->x, n, r->y);
  TRY(tsr_pass_linear(pass, l->q, -1, r->y, n, r->q));
  TRY(tsr_pass_linear(pass, l->k, -1, r->y, n, r->k));
  TRY(tsr_pass_linear(pass, l->v, -1, r->y, n, r->v));
  rotate(m, pass->positions, n, m->heads, r->q);
  rotate(m, pass->positions, n, m->key_value_heads, r->k);
  const tsr_attention attention = {.size = sizeof(attention),
                                   .heads = m->heads,
                                   .key_value_heads = m->key_value_heads,
                                   .head_dim = m->head_dim,
                                   .q = r->q,
                                   .k = r->k,
                                   .v = r->v,
                                   .out = r->q};
  TRY(tsr_pass_attention(pass, i, &attention));
  TRY(tsr_pass_linear(pass, l->o, -1, r->q, n, r->y));
  add(r->y, n * m->width, r->x);

  norm(m, pass->parameters[l->mlp_norm], r->x, n, r->y);
  TRY(tsr_pass_linear(pass, l->gate, -1, r->y, n, r->gate));
  TRY(tsr_pass_linear(pass, l->up, -1, r->y, n, r->up));
  for (int64_t j = 0; j < n * m->inner; ++j) r->up[j] *= r->gate[j] / (1 + expf(-r->gate[j]));
  TRY(tsr_pass_linear(pass, l->down, -1, r->up, n, r->y));
  add(r->y, n * m->width, r->x);
  return NULL;
}

static tsr_status* forward(void* user, void* model, const tsr_pass* pass) {
  (void)user;
  const llama* const m = model;
  const size_t n = (size_t)(pass->rows * pass->tokens);
  const size_t width = (size_t)m->width;
  const size_t kv = (size_t)(m->key_value_heads * m->head_dim);
  room r;
  TRY(tsr_pass_memory(pass, n * width, &r.x));
  TRY(tsr_pass_memory(pass, n * width, &r.y));
  TRY(tsr_pass_memory(pass, n * width, &r.q));
  TRY(tsr_pass_memory(pass, n * kv, &r.k));
  TRY(tsr_pass_memory(pass, n * kv, &r.v));
  TRY(tsr_pass_memory(pass, n * (size_t)m->inner, &r.gate));
  TRY(tsr_pass_memory(pass, n * (size_t)m->inner, &r.up));
  const float* const table = pass->parameters[m->table];
  for (size_t t = 0; t < n; ++t) {
    memcpy(r.x + t * width, table + (size_t)pass->ids[t] * width, width * sizeof(float));
  }
  for (int64_t i = 0; i < m->num_layers; ++i) TRY(run_layer(m, i, pass, &r));
  /* The logits that are wanted alone; their tokens move to the front. */
  for (int64_t i = 0; i < pass->num_wanted; ++i) {
    memmove(r.x + (size_t)i * width, r.x + (size_t)pass->wanted[i] * width, width * sizeof(float));
  }
  norm(m, pass->parameters[m->norm], r.x, pass->num_wanted, r.y);
  return tsr_pass_linear(pass, m->head, -1, r.y, pass->num_wanted, pass->logits);
}

tsr_status* register_my_llama(void);
tsr_status* register_my_llama(void) {
  const tsr_family family = {.size = sizeof(family),
                             .model_type = "my_llama",
                             .architecture = "MyLlamaForCausalLM",
                             .build = build,
                             .forward = forward,
                             .release = release};
  return tsr_register_family(&family);
}
