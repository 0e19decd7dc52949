# SPDX-License-Identifier: Apache-2.0
"""Writes what hugging_face_runs_test.cc compares with: a small BERT, sentences, and the losses and
rates of transformers' Trainer (4.57) under several TrainingArguments.

    python3 make_runs.py            # writes model/, train.json and runs.json beside itself

The order of the data is theirs from first to last, since torch's shuffling is its own; there is no
dropout. Losses are not rounded, as the Trainer's log would.
"""

import json
import os
import random

import torch
import transformers
from transformers import (BertConfig, BertForSequenceClassification, BertTokenizerFast, Trainer,
                          TrainerCallback, TrainingArguments)

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ['good', 'bad', 'fine', 'film', 'plot', 'slow', 'the', 'a', 'is', 'not']

# The arguments beside --output_dir: none, and what changes a schedule, a batch or an optimizer.
ARGUMENTS = [
    {},
    {'learning_rate': 2e-3, 'num_train_epochs': 2, 'per_device_train_batch_size': 4},
    {'learning_rate': 2e-3, 'lr_scheduler_type': 'cosine', 'warmup_ratio': 0.2, 'weight_decay': 0.05,
     'max_grad_norm': 0.1, 'gradient_accumulation_steps': 2, 'per_device_train_batch_size': 3},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'constant', 'warmup_steps': 5},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'constant_with_warmup', 'warmup_steps': 5},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'polynomial', 'warmup_steps': 3,
     'lr_scheduler_kwargs': {'lr_end': 1e-5, 'power': 2.0}},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'inverse_sqrt', 'warmup_steps': 4},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'cosine_with_restarts',
     'lr_scheduler_kwargs': {'num_cycles': 2}},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'warmup_stable_decay', 'warmup_steps': 2,
     'lr_scheduler_kwargs': {'num_decay_steps': 6}},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'warmup_stable_decay', 'warmup_steps': 4,
     'lr_scheduler_kwargs': {'num_decay_steps': 6, 'min_lr_ratio': 0.1, 'decay_type': 'linear',
                             'warmup_type': 'cosine'}},
    {'lr_scheduler_type': 'cosine_with_min_lr', 'warmup_steps': 3,
     'lr_scheduler_kwargs': {'min_lr_rate': 0.1}},
    {'learning_rate': 1e-3, 'lr_scheduler_type': 'cosine_warmup_with_min_lr', 'warmup_steps': 3,
     'lr_scheduler_kwargs': {'min_lr': 1e-4}},
    {'learning_rate': 1e-3, 'optim': 'adafactor'},
    {'learning_rate': 1e-1, 'optim': 'sgd', 'max_steps': 20},
    {'adam_beta1': 0.8, 'adam_beta2': 0.99, 'adam_epsilon': 1e-4, 'label_smoothing_factor': 0.1},
]


def main():
    random.seed(3)
    rows = []
    for _ in range(45):
        words = [random.choice(WORDS) for _ in range(random.randint(3, 10))]
        rows.append({'sentence': ' '.join(words), 'label': int('good' in words)})
    with open(HERE + '/train.json', 'w') as out:
        out.writelines(json.dumps(row) + '\n' for row in rows)
    model = HERE + '/model'
    os.makedirs(model, exist_ok=True)
    with open(model + '/vocab.txt', 'w') as out:
        out.write('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] + WORDS) + '\n')
    tokenizer = BertTokenizerFast(vocab_file=model + '/vocab.txt')
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2,
                        num_attention_heads=2, intermediate_size=32, max_position_embeddings=16,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    made = BertForSequenceClassification(config)
    with torch.no_grad():  # of a size at which 20 steps show a difference
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5)
    made.save_pretrained(model)
    samples = []
    for row in rows:
        sample = tokenizer(row['sentence'], truncation=True, max_length=16, padding='max_length')
        sample['labels'] = row['label']
        samples.append(sample)

    class InOrder(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    class Kept(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if 'loss' in logs:
                self.rows.append([logs['loss'], logs['learning_rate'], float(logs['grad_norm'])])

    transformers.trainer.round = lambda value, digits=None: value
    runs = []
    for arguments in ARGUMENTS:
        kept = Kept()
        kept.rows = []
        run = InOrder(model=BertForSequenceClassification.from_pretrained(model),
                      args=TrainingArguments(output_dir='/tmp/hugging_face_run', logging_steps=1,
                                             report_to=[], use_cpu=True, disable_tqdm=True,
                                             save_strategy='no', **arguments),
                      train_dataset=samples, callbacks=[kept])
        run.train()
        runs.append({'arguments': arguments, 'steps': len(kept.rows), 'rows': kept.rows[:20]})
    with open(HERE + '/runs.json', 'w') as out:
        json.dump(runs, out, indent=0)
        out.write('\n')


main()
