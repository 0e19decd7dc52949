// SPDX-License-Identifier: Apache-2.0
/* Training with Tessera as a library: all of tessera.h, and tsr_train_*.
 *
 *   tsr_train_options options = {.size = sizeof(options), .learning_rate = 1e-4};
 *   tsr_trainer* trainer = NULL;
 *   tsr_status* status = tsr_train_create("gpt2-folder", &options, &trainer);
 *   for (int i = 0; status == NULL && i < 100; ++i) {
 *     double loss;
 *     const tsr_named_tensor batch[] = {input_ids, labels};
 *     status = tsr_train_step(trainer, batch, 2, &loss);
 *   }
 *   if (status == NULL) status = tsr_train_save(trainer, "tuned");
 *
 * C99 and later. Programs link libtessera_training in place of libtessera. What tessera.h says of
 * statuses, options, threads and lifetimes holds here: a trainer runs one call at a time. The same
 * calls give the same bits, with any number of threads, and those of the C++ engine
 * (train/engine/engine.h).
 *
 * A call that fails before an update (no memory, cancelled) drops the batches that the update would
 * have been of; the parameters are as they were. One that fails amid an update leaves parameters
 * half updated: the trainer then answers TSR_FAILED_PRECONDITION until a checkpoint is loaded.
 */
#ifndef TESSERA_TRAINING_H_
#define TESSERA_TRAINING_H_

#include "tessera.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_trainer tsr_trainer;

typedef struct tsr_train_options {
  size_t size;
  uint64_t seed;                 /* of new parameters and of dropout */
  const char* optimizer;         /* "adamw" by default; docs/cli.md lists them and their options */
  const char* optimizer_options; /* a JSON object: {"betas": [0.9, 0.98]} */
  double learning_rate;          /* 0: 3e-4 */
  double weight_decay;           /* of matrices and embeddings */
  double max_grad_norm;          /* gradients are scaled down to it; 0: they are not */
  int64_t accumulation_steps;    /* batches of an update, which all count alike; 0: 1 */
  double label_smoothing;
  tsr_dtype dtype;    /* of parameters; the optimizer keeps a float32 copy of those of 16 bits */
  tsr_dtype products; /* what float32 operands of matrix products become (mixed precision) */
  /* A JSON object of keys that replace those of config.json: {"num_labels": 3, "dropout": 0}. */
  const char* config_changes;
  /* 1: parameters of a head that the folder lacks, or has in another shape, are new ones. */
  int new_head;
  const char* tokenizer; /* a folder, or "byte"; NULL: the model's. Its files are saved too */
  int threads;           /* of its own; 0: those of the process, shared */
  uint64_t memory_limit; /* bytes of its tensors; 0: no limit */
  /* A LoRA trains in place of the model's own weights, which may then be quantised: a JSON object
   * as PEFT's adapter_config.json, {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj",
   * "v_proj"]}. Without target_modules, PEFT's of the model. NULL: the weights train. */
  const char* adapter;
} tsr_train_options;

/* `model` is a folder, an archive or a GGUF file (tsr_model_load), whose weights are trained
 * further, or a preset ("gpt-mini"; `tessera models` lists them), whose parameters are new and
 * whose vocabulary is the tokenizer's. */
tsr_status* tsr_train_create(const char* model, const tsr_train_options* options,
                             tsr_trainer** out);

/* The forward and backward pass of a batch (the tensors of tsr_forward, labels among them) and,
 * with every accumulation_steps-th one, an update. `*loss` is the mean over the batch's targets.
 * TSR_ABORTED where the gradients of an update are not finite: it is left out. (With float16,
 * updates are left out until the loss is scaled right: tsr_train_info.skipped counts them.) */
tsr_status* tsr_train_step(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n,
                           double* loss);
/* The loss alone, without dropout. */
tsr_status* tsr_train_evaluate(tsr_trainer* trainer, const tsr_named_tensor* in, size_t n,
                               double* loss);
/* Of the updates to come; >= 0. */
tsr_status* tsr_train_set_learning_rate(tsr_trainer* trainer, double learning_rate);
/* Ends the call that runs, if one does, with TSR_CANCELLED. An update is not broken off. */
tsr_status* tsr_train_cancel(tsr_trainer* trainer);

typedef struct tsr_train_info {
  size_t size;
  uint64_t updates;    /* done; those that were left out count */
  uint64_t skipped;    /* of these, left out */
  int64_t accumulated; /* batches since */
  double learning_rate;
  double grad_norm;   /* of the last update, before max_grad_norm */
  int64_t parameters; /* numbers in the model, tied ones once */
  const char* config; /* config.json as one line */
} tsr_train_info;
/* `info->size` is set by the caller. */
tsr_status* tsr_train_describe(tsr_trainer* trainer, tsr_train_info* info);

/* Writes a folder that tsr_model_load, the `tessera` command and transformers load; with an adapter
 * PEFT's folder of it (tsr_load_options.adapters). A model's folder that exists is replaced at
 * once, with all that it holds, when the new one is whole; an empty folder, too. Any other folder,
 * and a file, is refused (TSR_INVALID_ARGUMENT). */
tsr_status* tsr_train_save(tsr_trainer* trainer, const char* folder);

/* All that training goes on from (parameters, the optimizer's state, counts, the learning rate), in
 * a directory that is there whole or not at all; one that exists is replaced where it is empty or a
 * checkpoint's, and refused otherwise. Not between the batches of an update. A trainer
 * made alike goes on with the same bits. */
tsr_status* tsr_train_save_checkpoint(tsr_trainer* trainer, const char* directory);
tsr_status* tsr_train_load_checkpoint(tsr_trainer* trainer, const char* directory);

tsr_status* tsr_train_release(tsr_trainer* trainer);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_TRAINING_H_ */
