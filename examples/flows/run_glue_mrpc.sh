#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hugging Face's run_glue.py on MRPC, by its own flags: pairs of sentences that mean the same or not.
#
#   run_glue_mrpc.sh MODEL DATA OUT [more flags]
#
# MODEL is a BERT or RoBERTa folder, or a preset with `--tokenizer DIR` among the flags. DATA holds
# train.csv and dev.csv with the columns sentence1, sentence2 and label. TESSERA names the program.
set -eu
model=$1 data=$2 out=$3
shift 3
exec "${TESSERA:-tessera}" train \
    --model_name_or_path "$model" \
    --task_name mrpc \
    --train_file "$data/train.csv" \
    --validation_file "$data/dev.csv" \
    --do_train \
    --do_eval \
    --max_seq_length 128 \
    --per_device_train_batch_size 32 \
    --learning_rate 2e-5 \
    --num_train_epochs 3 \
    --report_to tensorboard csv \
    --output_dir "$out" \
    "$@"
