# SPDX-License-Identifier: Apache-2.0
"""Writes what system_runs_test.cc compares with: a small BERT, sentences, and the losses and rates of
transformers' Trainer (4.57) under several TrainingArguments, with a DeepSpeed file's values and with
PEFT (0.21), and of the loops of FlagAI's and Colossal-AI's trainers, written here.

    python3 make_runs.py FLAGAI COLOSSALAI

The arguments are checkouts of FlagAI-Open/FlagAI and hpcaitech/ColossalAI, whose schedulers are
read. model/, adapter/, train.json and runs.json appear beside this file.

The order of the data is theirs from first to last, since torch's shuffling is its own; there is no
dropout. Losses are not rounded, as the Trainer's log would.
"""

import importlib.util
import json
import os
import random
import sys
import types

import peft
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
     'max_grad_norm': 0.1, 'gradient_accumulation_steps': 2, 'per_device_train_batch_size': 4},
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

# Runs whose line says it otherwise: the Trainer's arguments, the line's words, and its files.
DEEPSPEED = {'train_micro_batch_size_per_gpu': 5, 'gradient_accumulation_steps': 2,
             'gradient_clipping': 0.2, 'zero_optimization': {'stage': 2},
             'optimizer': {'type': 'AdamW', 'params': {
                 'lr': 2e-3, 'betas': [0.8, 0.99], 'eps': 1e-7, 'weight_decay': 0.03}}}
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
mixed_precision: 'no'
num_machines: 1
num_processes: 1
use_cpu: true
"""
OTHERWISE = [
    ({'learning_rate': 2e-3, 'adam_beta1': 0.8, 'adam_beta2': 0.99, 'adam_epsilon': 1e-7,
      'weight_decay': 0.03, 'max_grad_norm': 0.2, 'per_device_train_batch_size': 5,
      'gradient_accumulation_steps': 2},
     ['--deepspeed', 'ds.json'], {'ds.json': json.dumps(DEEPSPEED)}),
    ({'learning_rate': 1e-3}, ['--learning_rate', '1e-3', '--accelerate', 'accelerate.yaml'],
     {'accelerate.yaml': ACCELERATE}),
    ({'learning_rate': 5e-3, 'num_train_epochs': 2, 'adapter': True},
     ['--learning_rate', '5e-3', '--num_train_epochs', '2', '--adapter', 'MODEL/../adapter'], {}),
]


def schedulers(path, name):
    """A file of schedulers that imports nothing of its package but its neighbours."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batches(samples, size, epochs):
    for _ in range(epochs):
        for at in range(0, len(samples), size):
            part = samples[at:at + size]
            yield {key: torch.tensor([sample[key] for sample in part]) for key in part[0]}


def loop(model, samples, size, epochs, optimizer, schedule, clip):
    """What both trainers do each step: their optimizers, schedules and clipping are theirs."""
    rows = []
    for batch in batches(samples, size, epochs):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or 1e30)
        rows.append([loss.item(), optimizer.param_groups[0]['lr'], norm.item()])
        optimizer.step()
        schedule.step()
    return rows


def flagai(path, model, samples, lr, epochs, size, weight_decay, warm_up, clip):
    annealing = schedulers(path + '/flagai/schedulers.py', 'flagai_schedulers').AnnealingLR
    decayed = [p for n, p in model.named_parameters() if 'bias' not in n and 'LayerNorm' not in n]
    others = [p for n, p in model.named_parameters() if 'bias' in n or 'LayerNorm' in n]
    optimizer = torch.optim.Adam([{'params': decayed}, {'params': others, 'weight_decay': 0.0}],
                                 lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999), eps=1e-8)
    steps = epochs * -(-len(samples) // size)
    schedule = annealing(optimizer, start_lr=lr, warmup_iter=int(warm_up * steps),
                         decay_style='linear', num_iters=steps)
    return loop(model, samples, size, epochs, optimizer, schedule, clip)


# As torch had it while Colossal-AI's schedulers were written (see optim/testdata/schedule_golden.py).
def first_rate(get_lr):
    def rates_of(self):
        if self.last_epoch == 0:
            return [group['lr'] for group in self.optimizer.param_groups]
        return get_lr(self)
    return rates_of


def colossalai(path, model, samples, lr, epochs, size, kind, warmup):
    folder = path + '/colossalai/nn/lr_scheduler'
    logging = types.ModuleType('colossalai.logging')
    logging.get_dist_logger = lambda: None
    sys.modules.update({'colossalai': types.ModuleType('colossalai'), 'colossalai.logging': logging})
    package = types.ModuleType('lr_scheduler')
    package.__path__ = [folder]
    sys.modules['lr_scheduler'] = package
    module = importlib.import_module('lr_scheduler.' + kind)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    cosine.get_lr = first_rate(cosine.get_lr)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, eps=1e-8)
    steps = epochs * -(-len(samples) // size)
    made = module.LinearWarmupLR if kind == 'linear' else module.CosineAnnealingWarmupLR
    schedule = made(optimizer, total_steps=steps, warmup_steps=warmup)
    return loop(model, samples, size, epochs, optimizer, schedule, 0)


def main():
    flagai_path, colossalai_path = sys.argv[1:]
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

    def fresh():
        return BertForSequenceClassification.from_pretrained(model)

    low_rank = peft.LoraConfig(r=4, lora_alpha=16, target_modules=['query', 'value'],
                               modules_to_save=['classifier'], lora_dropout=0.0)
    adapter = peft.get_peft_model(fresh(), low_rank)
    adapter.peft_config['default'].base_model_name_or_path = 'model'
    adapter.save_pretrained(HERE + '/adapter')
    os.remove(HERE + '/adapter/README.md')
    transformers.trainer.round = lambda value, digits=None: value
    runs = []
    lines = [(arguments, None, {}) for arguments in ARGUMENTS] + OTHERWISE
    for arguments, line, files in lines:
        trained = fresh()
        if arguments.pop('adapter', False):
            trained = peft.PeftModel.from_pretrained(trained, HERE + '/adapter', is_trainable=True)
        kept = Kept()
        kept.rows = []
        run = InOrder(model=trained,
                      args=TrainingArguments(output_dir='/tmp/hugging_face_run', logging_steps=1,
                                             report_to=[], use_cpu=True, disable_tqdm=True,
                                             save_strategy='no', **arguments),
                      train_dataset=samples, callbacks=[kept])
        run.train()
        if line is None:
            line = []
            for key, value in arguments.items():
                line += ['--' + key, value if isinstance(value, str) else json.dumps(value)]
        runs.append({'system': 'Hugging Face', 'line': line, 'files': files,
                     'steps': len(kept.rows), 'rows': kept.rows[:20]})
    for how in ({'lr': 1e-3, 'epochs': 1, 'size': 4, 'weight_decay': 1e-5, 'warm_up': 0.1, 'clip': 1.0},
                {'lr': 2e-3, 'epochs': 2, 'size': 6, 'weight_decay': 0.1, 'warm_up': 0.25,
                 'clip': 0.2}):
        rows = flagai(flagai_path, fresh(), samples, **how)
        line = ['--env_type=pytorch', f'--lr={how["lr"]}', f'--epochs={how["epochs"]}',
                f'--batch_size={how["size"]}']
        if how['epochs'] > 1:  # the first leaves the rest unsaid
            line += [f'--weight_decay={how["weight_decay"]}', f'--warm_up={how["warm_up"]}',
                     f'--clip_grad={how["clip"]}']
        runs.append({'system': 'FlagAI', 'line': line, 'files': {}, 'steps': len(rows),
                     'rows': rows[:20]})
    for kind in ('linear', 'cosine'):
        rows = colossalai(colossalai_path, fresh(), samples, 1e-3, 2, 5, kind, 3)
        runs.append({'system': 'Colossal-AI',
                     'line': ['--dialect', 'colossal-ai', '--lr-schedule', kind, '--warmup-steps',
                              '3', '--batch-size', '5', '--epochs', '2'],
                     'files': {}, 'steps': len(rows), 'rows': rows[:20]})
    with open(HERE + '/runs.json', 'w') as out:
        json.dump(runs, out, indent=0)
        out.write('\n')


main()
