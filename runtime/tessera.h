// SPDX-License-Identifier: Apache-2.0
/* Tessera as a library: models from Hugging Face folders, run in any program.
 *
 *   tsr_model* model = NULL;
 *   tsr_context* context = NULL;
 *   tsr_status* status = tsr_model_load("gpt2-folder", NULL, &model);
 *   if (status == NULL) status = tsr_context_create(model, NULL, &context);
 *   if (status == NULL) status = tsr_generate_text(context, "Once", 4, NULL, print_token, NULL);
 *   if (status != NULL) fprintf(stderr, "%s\n", tsr_status_message(status));
 *   tsr_status_release(status);
 *   tsr_context_release(context);
 *   tsr_model_release(model);
 *
 * C99 and later; tessera.hpp wraps it for C++, docs/embedding.md tells the rest.
 *
 * Statuses. Every function that can fail returns a status: NULL is success, anything else is to be
 * released. No exception, signal handler, exit or line of output crosses this border. A pointer
 * that is no handle of the right kind, or one that was released, is TSR_INVALID_ARGUMENT; so is
 * NULL where something is needed. What goes to `out` parameters is set on success alone.
 *
 * Structs of options begin with `size`, which the caller sets to sizeof the struct: a program runs
 * with later versions of the library as it is. A member of zero is the default, and so is NULL in
 * place of the struct.
 *
 * Threads. A model is read-only: any number of contexts on any threads use it at once. A context
 * runs one call at a time; a second one meanwhile is TSR_BUSY. What a context computes has the bits
 * that it would have alone, and those of the `tessera` command, with any number of threads.
 *
 * Lifetimes. Releasing NULL does nothing. Releasing what is in use (a context that runs, a model
 * that contexts stand on) is refused as TSR_BUSY and changes nothing. Text and memory that the
 * library hands out belong to the handle they were asked of, unless a function says otherwise.
 *
 * Text is UTF-8 with its length in bytes; names (const char*) end with a zero.
 */
#ifndef TESSERA_H_
#define TESSERA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ------------------------------------------------------------------------------- */

typedef struct tsr_status tsr_status;

/* Kinds of failure. Those up to 16 are gRPC's. */
enum {
  TSR_OK = 0,
  TSR_CANCELLED = 1, /* tsr_context_cancel, or a progress function, said so */
  TSR_UNKNOWN = 2,
  TSR_INVALID_ARGUMENT = 3, /* what the caller gave, or what a file holds, cannot be */
  TSR_DEADLINE_EXCEEDED = 4,
  TSR_NOT_FOUND = 5, /* no such file, tensor or tokenizer */
  TSR_ALREADY_EXISTS = 6,
  TSR_PERMISSION_DENIED = 7,
  TSR_RESOURCE_EXHAUSTED = 8, /* no memory; a full disk */
  TSR_FAILED_PRECONDITION = 9,
  TSR_ABORTED = 10,
  TSR_OUT_OF_RANGE = 11,
  TSR_UNIMPLEMENTED = 12,
  TSR_INTERNAL = 13,
  TSR_UNAVAILABLE = 14,
  TSR_DATA_LOSS = 15, /* a damaged file */
  TSR_UNAUTHENTICATED = 16,
  TSR_BUSY = 17 /* the handle is in use */
};

/* TSR_OK and "" of NULL. The message is one line that names the file, key or tensor. */
int tsr_status_code(const tsr_status* status);
const char* tsr_status_message(const tsr_status* status);
void tsr_status_release(tsr_status* status);
/* A status of one's own, for callbacks that return one; NULL of TSR_OK. */
tsr_status* tsr_status_create(int code, const char* message);

/* "0.8.0": what this library is, where TSR_VERSION is what the header is of. */
#define TSR_VERSION "0.8.0"
const char* tsr_version(void);

/* ---- The process ---------------------------------------------------------------------------- */

/* Where the library's memory comes from. Both are called from any thread, at once. They and `user`
 * stay valid until the process ends: threads and caches of the library keep blocks beyond the last
 * handle, and give each back to the allocator that it came from. */
typedef struct tsr_allocator {
  /* At least `bytes` > 0 bytes at a multiple of `alignment`, a power of two; NULL: there are none,
   * which the call that asked returns as TSR_RESOURCE_EXHAUSTED. */
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* memory);
  void* user;
} tsr_allocator;

enum { TSR_LOG_WARNING = 1, TSR_LOG_ERROR = 2 };
/* Given what a call has to say besides its status, from the thread that made the call. */
typedef void (*tsr_logger)(void* user, int level, const char* message);

typedef struct tsr_configuration {
  size_t size;
  const tsr_allocator* allocator; /* NULL: malloc and its kin */
  tsr_logger logger;              /* NULL: nothing is said */
  void* logger_user;
  int threads; /* of contexts that name no number, and of loading; 0: all cores of the process */
} tsr_configuration;

/* Before the first handle, or when all are released; else, and while a call makes a model or a
 * trainer, TSR_BUSY. NULL: the defaults. */
tsr_status* tsr_configure(const tsr_configuration* configuration);

/* ---- Tensors -------------------------------------------------------------------------------- */

/* No enumeration: a number that is none of these is refused, not undefined. */
typedef int tsr_dtype;
enum {
  TSR_DTYPE_DEFAULT = 0, /* float32, where a choice is asked for */
  TSR_FLOAT32 = 1,
  TSR_BFLOAT16 = 2,
  TSR_FLOAT16 = 3,
  TSR_FLOAT64 = 4,
  TSR_INT64 = 5,
  TSR_INT32 = 6,
  TSR_UINT8 = 7,
  TSR_BOOL = 8 /* a byte, 0 or 1 */
};

/* Elements lie one by one, the last dimension fastest; at most 8 dimensions. */
typedef struct tsr_named_tensor {
  const char* name;
  tsr_dtype dtype;
  size_t rank;
  const int64_t* shape; /* [rank] */
  const void* data;
  size_t bytes; /* as dtype and shape say; a tensor whose bytes differ is refused */
} tsr_named_tensor;

/* What tsr_forward gave. */
tsr_status* tsr_tensors_release(tsr_named_tensor* tensors);

/* ---- Models --------------------------------------------------------------------------------- */

typedef struct tsr_model tsr_model;

/* Bytes read so far, of how many in all; from the thread that loads. Anything but 0 ends loading
 * with TSR_CANCELLED. */
typedef int (*tsr_progress)(void* user, uint64_t done, uint64_t total);

/* How weights of linear layers and tables of tokens are held; activations are of `dtype`. */
typedef int tsr_weights;
enum {
  TSR_WEIGHTS_AS_STORED = 0,
  TSR_WEIGHTS_INT8 = 1, /* 8 bits, a scale for each output */
  TSR_WEIGHTS_Q8_0 = 2, /* 8 bits, a scale for each group of 32 */
  TSR_WEIGHTS_Q4_0 = 3, /* 4 bits, likewise */
  /* GGML's other blocks; those of 256 (*_K, IQ4_XS) hold rows whose length is a multiple of that,
   * and leave the others as they are stored. */
  TSR_WEIGHTS_Q4_1 = 4,
  TSR_WEIGHTS_Q5_0 = 5,
  TSR_WEIGHTS_Q5_1 = 6,
  TSR_WEIGHTS_Q2_K = 7,
  TSR_WEIGHTS_Q3_K = 8,
  TSR_WEIGHTS_Q4_K = 9,
  TSR_WEIGHTS_Q5_K = 10,
  TSR_WEIGHTS_Q6_K = 11,
  TSR_WEIGHTS_IQ4_NL = 12,
  TSR_WEIGHTS_IQ4_XS = 13
};

typedef struct tsr_load_options {
  size_t size;
  tsr_dtype dtype; /* of parameters and of what is computed: float32, bfloat16 or float16 */
  /* Parameters whose bytes a file has as they are needed are the mapped file: loading copies
   * nothing, and processes share the memory. 1: copied. A mapped file that another program cuts off
   * raises SIGBUS where it is touched; files should be replaced, not overwritten. */
  int copy_weights;
  const char* tokenizer; /* a folder of its own, or "byte"; NULL: the model's */
  tsr_progress progress;
  void* progress_user;
  /* Folders of adapters (PEFT's adapter_config.json and adapter_model.safetensors) that the model
   * carries; each context runs one of them, or none. */
  const char* const* adapters;
  size_t num_adapters;
  tsr_weights weights; /* what is stored dense is made to be so as it is loaded */
} tsr_load_options;

/* A model's folder (config.json, weights as safetensors or pytorch_model.bin, tokenizer files), or
 * a file that holds one: a tar (`tar cf model.tar -C folder .`) or a GGUF file */
tsr_status* tsr_model_load(const char* path, const tsr_load_options* options, tsr_model** out);
/* Such a file in memory, which stays there, and as it is, until the model is released. */
tsr_status* tsr_model_load_memory(const void* data, size_t size, const tsr_load_options* options,
                                  tsr_model** out);
/* Such a file within an open one, `length` bytes from `offset` on (0: all the rest). The descriptor
 * may be closed afterwards; where it reads stays unused. */
tsr_status* tsr_model_load_descriptor(int descriptor, uint64_t offset, uint64_t length,
                                      const tsr_load_options* options, tsr_model** out);

/* Such a file behind a function that copies bytes [offset, offset + count) to `buffer`; anything
 * but 0 is a failure, which loading returns. Called until loading returns, from any thread, one
 * call at a time. */
typedef struct tsr_reader {
  int (*read)(void* user, uint64_t offset, void* buffer, size_t count);
  uint64_t length;
  void* user;
} tsr_reader;
tsr_status* tsr_model_load_reader(const tsr_reader* reader, const tsr_load_options* options,
                                  tsr_model** out);

typedef struct tsr_model_info {
  size_t size;
  const char* model_type;   /* "gpt2" */
  const char* architecture; /* "GPT2LMHeadModel" */
  const char* config;       /* config.json as one line */
  int64_t parameters;       /* numbers in it, tied ones once */
  int64_t vocab_size;       /* 0: no tokens */
  int64_t max_positions;    /* 0: no limit */
  int64_t hidden_size;      /* numbers in a token's vector; 0: it gives none */
  int64_t labels;           /* of a classifier, else 0 */
  int generates;            /* whether tsr_generate works */
  int has_tokenizer;
  int64_t image_channels, image_height, image_width; /* what tsr_pixel_values gives; else 0 */
  int64_t embedding_size; /* numbers of TSR_POOLING_OF_MODEL; 0: the folder's is not supported */
  /* Ids of special tokens; -1: there is none. `end_tokens` are all that end a text, and of a model
   * with a chat template a turn. */
  int64_t bos_token, eos_token, pad_token;
  const int64_t* end_tokens;
  size_t num_end_tokens;
} tsr_model_info;
/* `info->size` is set by the caller. */
tsr_status* tsr_model_describe(const tsr_model* model, tsr_model_info* info);
/* The name of a label of a classifier; NULL beyond the last. */
const char* tsr_model_label(const tsr_model* model, int64_t label);

tsr_status* tsr_model_release(tsr_model* model);

/* ---- Text and pictures ---------------------------------------------------------------------- */

typedef struct tsr_tokenize_options {
  size_t size;
  /* 1: the text alone. 0: as the model reads it, with the special tokens around an encoder's text,
   * or those that a prompt of its family has. */
  int text_only;
  int special_as_text; /* 1: "<|endoftext|>" in the text is text */
} tsr_tokenize_options;

/* Writes at most `capacity` ids; `*count` is how many there are, also where they do not fit, which
 * is TSR_OUT_OF_RANGE unless `capacity` is 0. */
tsr_status* tsr_tokenize(const tsr_model* model, const char* text, size_t length,
                         const tsr_tokenize_options* options, int64_t* ids, size_t capacity,
                         size_t* count);

typedef struct tsr_detokenize_options {
  size_t size;
  int skip_special; /* 1: special tokens give no text */
} tsr_detokenize_options;

/* Likewise, in bytes; no zero is added. Bytes that are no UTF-8 (part of a character) stay. */
tsr_status* tsr_detokenize(const tsr_model* model, const int64_t* ids, size_t n,
                           const tsr_detokenize_options* options, char* text, size_t capacity,
                           size_t* length);

/* A picture, 8 bits a sample, 1 (grey) or 3 (RGB) channels side by side, rows from the top, made
 * `pixel_values` [channels, height, width] as preprocessor_config.json says. `count` as above. */
tsr_status* tsr_pixel_values(const tsr_model* model, const uint8_t* pixels, int64_t height,
                             int64_t width, int64_t channels, float* values, size_t capacity,
                             size_t* count);

/* ---- Contexts ------------------------------------------------------------------------------- */

typedef struct tsr_context tsr_context;

typedef struct tsr_context_options {
  size_t size;
  int threads;           /* of its own; 0: those of the process, shared */
  uint64_t memory_limit; /* bytes of its tensors; beyond, TSR_RESOURCE_EXHAUSTED; 0: no limit */
  int adapter;           /* which of the model's adapters, from 0; -1: the model without one */
  /* So many texts, the last ones, stay in the context with their keys and values ("What a context
   * keeps"). 0: none, and memory is given back after each call. */
  int64_t kept_texts;
} tsr_context_options;

tsr_status* tsr_context_create(const tsr_model* model, const tsr_context_options* options,
                               tsr_context** out);
/* Ends the call that runs, if one does, with TSR_CANCELLED: within 5 ms or a layer. From any
 * thread. */
tsr_status* tsr_context_cancel(tsr_context* context);
tsr_status* tsr_context_release(tsr_context* context);

/* What a context keeps: the tokens of its last `kept_texts` texts (prompt and answer), and what the
 * model has computed for them, its keys and values (the KV cache). A prompt that begins like one of
 * them is read from where they differ: of a conversation's next turn, only what is new. What is
 * written has the same bits with and without it. What counts are tokens, so that prompts may come
 * from any of tsr_generate, tsr_generate_text, tsr_chat and tsr_step.
 *
 *   tsr_context_options options = {sizeof(options)};
 *   options.kept_texts = 1;
 *   tsr_context_create(model, &options, &context);
 *   tsr_chat(context, first, ...);          all of it is read
 *   tsr_chat(context, first_and_more, ...); what follows the first answer is read
 *   tsr_context_save(context, "talk.safetensors");
 *
 * A text takes 2 * layers * key/value heads * head_dim numbers of the model's dtype for each token.
 * Models that have an encoder (T5), or no cache of keys and values, keep nothing. Texts of beams
 * (num_beams) and those that tsr_logprobs scores are not kept, nor are texts that failed; one that
 * its callback or tsr_context_cancel has ended is.
 *
 * Another context of the same model, with the same options, that begins with what this one keeps;
 * from then on each has its own. */
tsr_status* tsr_context_fork(tsr_context* context, tsr_context** out);
/* Forgets all texts and gives their memory back. */
tsr_status* tsr_context_clear(tsr_context* context);
/* Writes what the context keeps to a safetensors file, which appears whole or not at all. A context
 * that keeps nothing gives a file without texts. */
tsr_status* tsr_context_save(tsr_context* context, const char* path);
/* The context then keeps what is in such a file, in place of its own texts: the last `kept_texts`
 * of them. The file may come from another process, machine or context, of a model with the same
 * configuration, weights and dtype. TSR_INVALID_ARGUMENT for one of another model (the keys of a
 * text's first token are computed, and must be those of the file but for rounding), TSR_DATA_LOSS
 * for a damaged file, TSR_FAILED_PRECONDITION where `kept_texts` is 0. After a failure the context
 * keeps what it kept. */
tsr_status* tsr_context_restore(tsr_context* context, const char* path);
/* The same in memory: at most `capacity` bytes are written; `*size` is how many there are, also
 * where they do not fit, which is TSR_OUT_OF_RANGE unless `capacity` is 0. */
tsr_status* tsr_context_save_memory(tsr_context* context, void* data, size_t capacity,
                                    size_t* size);
tsr_status* tsr_context_restore_memory(tsr_context* context, const void* data, size_t size);

typedef struct tsr_context_info {
  size_t size;
  int64_t kept_texts;     /* now */
  int64_t kept_tokens;    /* of all of them */
  uint64_t cache_bytes;   /* of their keys and values; what texts have in common counts once */
  uint64_t memory_bytes;  /* of the context's tensors now; 0 without a memory_limit (tsr_memory) */
  uint64_t memory_peak;   /* the most that they were; likewise */
  int64_t tokens_read;    /* of prompts, by the model, in all calls so far; not those of scores */
  int64_t tokens_reused;  /* of prompts, that were kept */
  int64_t tokens_written; /* new ones */
} tsr_context_info;
/* `info->size` is set by the caller. */
tsr_status* tsr_context_describe(tsr_context* context, tsr_context_info* info);

typedef struct tsr_memory_info {
  size_t size;
  uint64_t bytes;    /* of tensors now: of contexts without a memory_limit, and copied weights */
  uint64_t peak;     /* the most that they were */
  uint64_t reserved; /* held from the system or the host's allocator: `bytes`, and blocks that wait
                        to be used again */
} tsr_memory_info;
/* The memory of the process's tensors. Mapped weights are the system's, and do not count. */
tsr_status* tsr_memory(tsr_memory_info* info);

/* Named tensors through the model: the names, shapes and meanings of `tessera forward`
 * (`input_ids` int64 [B, T], `pixel_values` [B, C, H, W], `labels`, ...; integers and floats of any
 * size). `*out` are `*m` tensors: `logits`, `last_hidden_state`, ..., `loss` where labels are
 * given; tsr_tensors_release frees them, all at once. */
tsr_status* tsr_forward(tsr_context* context, const tsr_named_tensor* in, size_t n,
                        tsr_named_tensor** out, size_t* m);

typedef struct tsr_forward_options {
  size_t size;
  int all_hidden_states; /* 1: `hidden_states.0` ... `hidden_states.L` too */
} tsr_forward_options;
tsr_status* tsr_forward_with(tsr_context* context, const tsr_named_tensor* in, size_t n,
                             const tsr_forward_options* options, tsr_named_tensor** out, size_t* m);

/* How the hidden states of a text's tokens become one vector. */
enum {
  TSR_POOLING_MEAN = 0,
  TSR_POOLING_FIRST = 1,
  TSR_POOLING_LAST = 2,
  TSR_POOLING_POOLER = 3,
  TSR_POOLING_OF_MODEL = 4 /* as sentence-transformers' modules.json says; else the mean */
};
typedef struct tsr_embed_options {
  size_t size;
  int pooling;
  int normalise;      /* 1: divided by its Euclidean length */
  const char* prompt; /* tsr_embed_text: put before the text; NULL: the folder's default prompt */
  int64_t max_tokens; /* tsr_embed_text: a longer text is cut; 0: as the folder says */
} tsr_embed_options;

/* The vector of one text: `capacity` numbers, tsr_model_info.hidden_size of them, or its
 * embedding_size for TSR_POOLING_OF_MODEL. Of an encoder beside a decoder, the encoder's. */
tsr_status* tsr_embed(tsr_context* context, const int64_t* ids, size_t n,
                      const tsr_embed_options* options, float* out, size_t capacity);
/* The same of a text, as `tessera embed` has it: with the folder's prompt, and cut where the folder
 * says. Without options, TSR_POOLING_OF_MODEL. */
tsr_status* tsr_embed_text(tsr_context* context, const char* text, size_t length,
                           const tsr_embed_options* options, float* out, size_t capacity);

/* How relevant each of `n` documents is for a query, by a classifier with one label (a
 * cross-encoder): what `tessera rerank` prints. `lengths` are those of the documents, in bytes. */
tsr_status* tsr_rerank(tsr_context* context, const char* query, size_t query_length,
                       const char* const* documents, const size_t* lengths, size_t n,
                       double* scores);

/* A token and the natural logarithm of its probability, as the model gives it: before penalties,
 * temperature and whatever else chooses among tokens. */
typedef struct tsr_logprob {
  int64_t id;
  double logprob;
} tsr_logprob;

/* The log-probabilities of given tokens: `logprobs[i]` is that of `ids[i]` behind those before it,
 * and NAN for the first, which has nothing before it. `likeliest`, unless `top` is 0, has `top`
 * tokens for each place, the likeliest first (of equals the lower id), those of the first place
 * being {-1, NAN}; where the vocabulary has fewer, the rest is so too.
 *
 *   double logprobs[3];
 *   tsr_logprob likeliest[3 * 5];
 *   status = tsr_logprobs(context, ids, 3, 5, logprobs, likeliest);
 *
 * TSR_INVALID_ARGUMENT for a model that does not generate, one with an encoder, and one whose
 * prompts see what is behind them (GLM). Those of new tokens: tsr_generate_options.logprobs. */
tsr_status* tsr_logprobs(tsr_context* context, const int64_t* ids, size_t n, size_t top,
                         double* logprobs, tsr_logprob* likeliest);

/* What a logits callback is given. */
typedef struct tsr_logits {
  size_t size;
  const int64_t* ids; /* the text so far, prompt included (of a model with an encoder, without) */
  size_t num_ids;
  double* logits; /* may be changed; -INFINITY forbids a token */
  size_t num_logits;
  int64_t sequence; /* as tsr_token has it */
} tsr_logits;
/* Called before each token is chosen, from the thread of the call, with the logits as the model
 * gives them. Penalties, logit_bias, forbidden tokens, json_schema, temperature and filters come
 * afterwards. Anything but 0 ends the generation, as of a tsr_token_callback. A NAN, +INFINITY, or
 * no token that is allowed, is TSR_INVALID_ARGUMENT. */
typedef int (*tsr_logits_callback)(void* user, const tsr_logits* logits);

enum { TSR_SAMPLING_DEFAULT = 0, TSR_SAMPLING_OFF = 1, TSR_SAMPLING_ON = 2 };
/* Members that are 0 or NULL are as the model's generation_config.json has them, else as the
 * `tessera generate` command has them. */
typedef struct tsr_generate_options {
  size_t size;
  int64_t max_new_tokens;
  /* A temperature, top_k or top_p asks for sampling, unless this is off: then the likeliest token
   * is taken. */
  int sampling;
  double temperature;
  int64_t top_k; /* -1: all */
  double top_p;
  double repetition_penalty;
  int64_t num_beams;
  double length_penalty;
  const char* const* stop; /* texts that end it: needs a tokenizer */
  size_t stop_count;
  uint64_t seed;
  struct tsr_settings* settings; /* what tsr_generate_options_set has put there */
  /* The text of a JSON Schema, which the new text fits; "" or NULL: anything. Needs a tokenizer,
   * and no beams. */
  const char* json_schema;
  /* n > 0: tokens come with their log-probabilities and those of the n likeliest (tsr_token.top);
   * -1: with their own alone; 0: without. Not with beams. */
  int64_t logprobs;
  tsr_logits_callback logits; /* NULL: none; not with beams */
  void* logits_user;
} tsr_generate_options;

/* Sets a generation setting by its name, as the flags of `tessera generate` have it without their
 * dashes ("repetition_penalty", "1.2"; "frequency_penalty", "0.5"; "presence_penalty", "0.5";
 * "logit_bias", "15:-1,27:0.5"; "stop_strings" once for each text; "temperature", "0" for the
 * likeliest token, since a member of 0 asks for the model's default). It wins over the member of
 * the same name. docs/cli.md lists the names (generate). A name or a value that is not known is
 * TSR_INVALID_ARGUMENT, and changes nothing. */
tsr_status* tsr_generate_options_set(tsr_generate_options* options, const char* name,
                                     const char* value);
/* Frees what tsr_generate_options_set has put there; the members stay. Copies of the struct share
 * it: one of them is cleared, and the others are then TSR_INVALID_ARGUMENT. */
void tsr_generate_options_clear(tsr_generate_options* options);

enum { TSR_END_NONE = 0, TSR_END_LENGTH = 1, TSR_END_OF_TEXT = 2, TSR_END_STOP = 3 };
typedef struct tsr_token {
  size_t size;
  int64_t id; /* -1 of a text's last call, which says how it ended */
  /* The text that is certain with this token: whole characters that no stop text takes back. */
  const char* text;
  size_t length;
  int end;          /* TSR_END_NONE, but of the last call */
  int64_t sequence; /* which text of `num_return_sequences` it belongs to: 0, 1, ... */
  /* With tsr_generate_options.logprobs: the token's log-probability, and the likeliest tokens at
   * its place, the likeliest first. Else, and of a text's last call, 0 and none. */
  double logprob;
  const tsr_logprob* top;
  size_t num_top;
} tsr_token;

/* Called for every new token, and once more at the end of each text. Anything but 0 ends the
 * generation, which is no failure; no further call follows. With beams, all calls come at the end;
 * several samples are written at the same time, and their calls take turns. */
typedef int (*tsr_token_callback)(void* user, const tsr_token* token);

/* Continues `ids` (or, with an encoder, answers them). */
tsr_status* tsr_generate(tsr_context* context, const int64_t* ids, size_t n,
                         const tsr_generate_options* options, tsr_token_callback callback,
                         void* user);
/* The same of a text, tokenized as a prompt. */
tsr_status* tsr_generate_text(tsr_context* context, const char* prompt, size_t length,
                              const tsr_generate_options* options, tsr_token_callback callback,
                              void* user);

/* Continues `n` prompts at the same time, which takes less time than one after the other: prompt i
 * are the `lengths[i]` ids at `ids[i]`. tsr_token.sequence is i, or i * num_return_sequences + j.
 * Each text is the one that its prompt gets by itself, unless it is sampled: the texts of a call
 * are sampled by different numbers. A failure of one ends all. */
tsr_status* tsr_generate_batch(tsr_context* context, const int64_t* const* ids,
                               const size_t* lengths, size_t n, const tsr_generate_options* options,
                               tsr_token_callback callback, void* user);

/* One token at a time, for hosts with a loop of their own: `*next` is the token that follows `ids`,
 * chosen as `options` say. `logits`, unless `capacity` is 0, are those of all tokens as the model
 * gives them, tsr_model_info.vocab_size numbers. A context that keeps texts reads what is new in
 * `ids` alone.
 *
 *   while (n < most && !is_end(next)) {
 *     status = tsr_step(context, ids, n, NULL, &next, NULL, 0);
 *     if (status != NULL) break;
 *     ids[n++] = next;
 *   }
 *
 * Sampling takes a number that follows from the seed and `n`. There is one text and no beam, and
 * settings that count or look at new tokens do not apply (max_new_tokens, min_new_tokens,
 * begin_suppress_tokens, forced_eos_token_id, stop texts, presence and frequency penalties).
 * TSR_INVALID_ARGUMENT for a json_schema and for a model with an encoder, TSR_OUT_OF_RANGE where
 * the logits do not fit, TSR_CANCELLED where the logits callback has ended it. */
tsr_status* tsr_step(tsr_context* context, const int64_t* ids, size_t n,
                     const tsr_generate_options* options, int64_t* next, double* logits,
                     size_t capacity);

/* Answers a conversation, as the chat template of the model's folder writes it: a JSON list of
 * messages, [{"role": "user", "content": "Hi"}], or an object that has `messages` and `tools`. The
 * token that ends a turn ends the answer; without a length of its own, an answer has at most 1024
 * tokens. TSR_NOT_FOUND for a model without a template.
 *
 *   {"messages": [{"role": "user", "content": "Will it rain in Oslo?"}],
 *    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {...}}}],
 *    "chat_template_kwargs": {"enable_thinking": false}}
 *
 * Calls of tools are text of the answer, in the form that the model has learnt; tsr_chat_message
 * reads them. */
tsr_status* tsr_chat(tsr_context* context, const char* messages, size_t length,
                     const tsr_generate_options* options, tsr_token_callback callback, void* user);

/* The prompt that tsr_chat makes of a conversation: ids as tsr_tokenize gives them. */
tsr_status* tsr_chat_prompt(const tsr_model* model, const char* messages, size_t length,
                            int64_t* ids, size_t capacity, size_t* count);

/* The message that an answer is: `ids` are the tokens that tsr_chat gave for the conversation.
 * Writes JSON, as tsr_detokenize writes text, which a conversation continues with:
 *
 *   {"role": "assistant", "content": "...", "reasoning_content": "...",
 *    "tool_calls": [{"id": "call_0", "type": "function",
 *                    "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]}
 *
 * `content` is null where there are calls alone; the last two are there where the answer has any.
 * Calls are those of tools that the conversation names, in the forms that `tessera serve` reads
 * (Qwen and Hermes, Llama 3, Mistral); what is none stays words. */
tsr_status* tsr_chat_message(const tsr_model* model, const char* messages, size_t length,
                             const int64_t* ids, size_t n, char* json, size_t capacity,
                             size_t* json_length);

/* ---- Families of one's own ------------------------------------------------------------------ */

/* A family of models that a host adds, or a shared object that the host has opened. It declares the
 * parameters of a config.json, and computes logits:
 *
 *   tsr_family family = {sizeof(family)};
 *   family.model_type = "my_lm";
 *   family.architecture = "MyForCausalLM";
 *   family.build = build;
 *   family.forward = forward;
 *   status = tsr_register_family(&family);
 *   if (status == NULL) status = tsr_model_load("folder", NULL, &model);
 *
 * The folder is like any other: config.json with that "model_type", weights, tokenizer files.
 * Whatever reads or writes text serves its models: tsr_forward (`input_ids`, `position_ids`),
 * tsr_generate and its kin, tsr_chat, tsr_logprobs, tsr_step, and contexts that keep texts.
 *
 * A family computes with float32 arrays, in C of its own: tables, norms, activations and rotary
 * positions are short loops. The library has calls for what loops do slowly: products with weights
 * (tsr_pass_linear) and attention (tsr_pass_attention), which also keeps keys and values. These lie
 * where those of the library's own families do, so that kept texts, forks and saved contexts need
 * no code of a family.
 *
 * A line that names the family refuses what its models do not do: a dtype but float32, `weights`
 * but TSR_WEIGHTS_AS_STORED, adapters, all_hidden_states, vectors and scores of texts, training.
 *
 * Callbacks run on the thread of the call that needs them, and several at the same time. What is
 * lent to a callback is the library's, and gone when the callback returns. Its functions run one
 * call at a time. A status that a callback returns is the library's from then on: the call fails
 * with its code, and with its message behind the family's name. */

/* What a model is made of. `build` sets the members below `config`. */
typedef struct tsr_blueprint {
  size_t size;
  const char* config;    /* config.json as one line */
  int64_t vocab_size;    /* at least 1 */
  int64_t max_positions; /* 0: no limit */
  /* Layers of tsr_pass_attention, each of which every pass calls once. 0: nothing is kept, and the
   * whole text is computed again for every token. */
  int64_t attention_layers;
} tsr_blueprint;

/* The value of a key of config.json; where the key is absent or null, `*value` stays as it is.
 * TSR_INVALID_ARGUMENT for a value of another kind. */
tsr_status* tsr_blueprint_integer(const tsr_blueprint* blueprint, const char* key, int64_t* value);
tsr_status* tsr_blueprint_number(const tsr_blueprint* blueprint, const char* key, double* value);
/* 0 or 1. */
tsr_status* tsr_blueprint_flag(const tsr_blueprint* blueprint, const char* key, int* value);
/* The text is lent, as the blueprint is. */
tsr_status* tsr_blueprint_text(const tsr_blueprint* blueprint, const char* key, const char** value);
/* Declares a parameter by its name in the weight files, which must have it, in any floating dtype.
 * `*parameter`, unless it is NULL, is its number: 0, 1, ... in the order of the calls. */
tsr_status* tsr_blueprint_parameter(const tsr_blueprint* blueprint, const char* name,
                                    const int64_t* shape, size_t rank, int64_t* parameter);

/* What is computed at a time: `rows` texts of `tokens` tokens each. A row is filled up behind its
 * last token; what is computed there does not count. Of a text whose beginning is kept, only the
 * tokens behind that are in the pass. */
typedef struct tsr_pass {
  size_t size;
  int64_t rows, tokens;
  const int64_t* ids;             /* [rows, tokens], each within the vocabulary */
  const int64_t* positions;       /* [rows, tokens]: places in the texts, from 0 */
  const float* const* parameters; /* by their numbers */
  /* The tokens whose logits are wanted: `wanted[i]` is row * tokens + token. `forward` writes all
   * of `logits`, [num_wanted, vocab_size]. */
  const int64_t* wanted;
  int64_t num_wanted;
  float* logits;
} tsr_pass;

/* `count` floats, which count in the context's memory_limit; they have no values yet. */
tsr_status* tsr_pass_memory(const tsr_pass* pass, size_t count, float** out);
/* y = x W^T + b, x [rows, in] and y [rows, out], with the bits of the library's linear layers.
 * `weight` is the number of a parameter [out, in], `bias` of one [out], or -1: none. y may be x. */
tsr_status* tsr_pass_linear(const tsr_pass* pass, int64_t weight, int64_t bias, const float* x,
                            int64_t rows, float* y);

/* Softmax attention of each token to itself and to those before it in its text. */
typedef struct tsr_attention {
  size_t size;
  int64_t heads;
  int64_t key_value_heads; /* divides `heads`, which share them in order; 0: `heads` */
  int64_t head_dim;
  const float* q; /* [rows, tokens, heads, head_dim] */
  const float* k; /* [rows, tokens, key_value_heads, head_dim] */
  const float* v; /* likewise */
  float* out;     /* as q, which it may be */
  double scale;   /* of q k^T; 0: 1 / sqrt(head_dim) */
  int64_t window; /* so many tokens are seen, the token itself among them; 0: all */
} tsr_attention;
/* As layer `layer` of blueprint.attention_layers: its keys and values are kept. */
tsr_status* tsr_pass_attention(const tsr_pass* pass, int64_t layer, const tsr_attention* attention);

typedef struct tsr_family {
  size_t size;
  const char* model_type;   /* "model_type" of config.json */
  const char* architecture; /* and, where config.json names one, the first of "architectures" */
  /* Describes the model of a config.json. `*model` is what `forward` and `release` are given. The
   * library builds a folder's model more than once while it loads it. */
  tsr_status* (*build)(void* user, tsr_blueprint* blueprint, void** model);
  /* Computes the logits of a pass, and changes nothing in `model`. */
  tsr_status* (*forward)(void* user, void* model, const tsr_pass* pass);
  /* Frees what a `build` that succeeded has made; NULL: nothing is to be freed. */
  void (*release)(void* user, void* model);
  void* user;
} tsr_family;

/* Adds a family for the rest of the process: its functions stay where they are. At any time, from
 * any thread. The struct and its texts are copied. TSR_ALREADY_EXISTS for a model_type that there
 * is. */
tsr_status* tsr_register_family(const tsr_family* family);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_H_ */
