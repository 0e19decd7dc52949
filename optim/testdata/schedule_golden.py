# SPDX-License-Identifier: Apache-2.0
"""Writes optim/testdata/schedule_golden.h: the learning rates that the published schedulers give over
whole runs of 20 steps.

    python3 schedule_golden.py COLOSSALAI FLAGAI MEGATRON > schedule_golden.h

The arguments are checkouts of hpcaitech/ColossalAI, FlagAI-Open/FlagAI and NVIDIA/Megatron-LM, of
which single files are read; transformers (4.57) and torch are installed.
"""

import importlib.util
import math
import sys
import types

import torch
from transformers import get_inverse_sqrt_schedule, get_scheduler

STEPS, LR = 20, 0.5


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates(opt, scheduler):
    values = []
    for _ in range(STEPS):
        values.append(opt.param_groups[0]['lr'])
        opt.step()
        scheduler.step()
    return values


def load(name, path, package=None):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    if package:
        module.__package__ = package
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cases(colossalai, flagai, megatron):
    for warmup in (0, 5):
        for kind, kwargs, ours in (
                ('linear', {}, '.kind = "linear"'),
                ('cosine', {}, '.kind = "cosine"'),
                ('cosine', {'num_cycles': 1.25}, '.kind = "cosine", .cycles = 1.25'),
                ('cosine_with_restarts', {'num_cycles': 3},
                 '.kind = "cosine_with_restarts", .cycles = 3'),
                ('polynomial', {'lr_end': 0.01, 'power': 2.0},
                 '.kind = "polynomial", .min_lr = 0.01, .power = 2'),
                ('constant', {}, '.kind = "constant"'),
                ('constant_with_warmup', {}, '.kind = "constant"'),
                ('inverse_sqrt', {}, '.kind = "inverse_sqrt"'),
                ('inverse_sqrt', {'timescale': 7}, '.kind = "inverse_sqrt", .timescale = 7'),
                ('cosine_with_min_lr', {'min_lr': 0.05}, '.kind = "cosine", .min_lr = 0.05'),
                ('cosine_warmup_with_min_lr', {'min_lr_rate': 0.1},
                 '.kind = "cosine", .min_lr = 0.05'),
                ('warmup_stable_decay', {'num_decay_steps': 6, 'min_lr_ratio': 0.1},
                 '.kind = "warmup_stable_decay", .min_lr = 0.05, .decay_steps = 6, '
                 '.decay_type = "cosine"'),
                ('warmup_stable_decay', {'num_decay_steps': 6, 'decay_type': 'linear'},
                 '.kind = "warmup_stable_decay", .decay_steps = 6'),
                ('warmup_stable_decay', {'num_decay_steps': 6, 'decay_type': 'cosine',
                                         'warmup_type': 'cosine'},
                 '.kind = "warmup_stable_decay", .decay_steps = 6, .decay_type = "cosine", '
                 '.warmup_type = "cosine"'),
                ('warmup_stable_decay', {'num_decay_steps': 6, 'decay_type': '1-sqrt',
                                         'warmup_type': '1-sqrt'},
                 '.kind = "warmup_stable_decay", .decay_steps = 6, .decay_type = "1-sqrt", '
                 '.warmup_type = "1-sqrt"')):
            if kind == 'warmup_stable_decay' and 'min_lr_ratio' in kwargs:
                ours += ', .warmup_min_lr = 0.05'
            opt = optimizer()
            if 'timescale' in kwargs:  # get_scheduler does not pass it on
                scheduler = get_inverse_sqrt_schedule(opt, warmup, **kwargs)
            else:
                scheduler = get_scheduler(kind, opt, num_warmup_steps=warmup,
                                          num_training_steps=STEPS,
                                          scheduler_specific_kwargs=kwargs)
            used = 0 if kind == 'constant' else warmup
            offset = 0 if kind == 'cosine_warmup_with_min_lr' else -1
            yield (f'transformers {kind} {kwargs} warm-up {warmup}', ours, used, offset, None,
                   rates(opt, scheduler))
        for name, ours in (('LinearWarmupLR', '.kind = "linear"'),
                           ('CosineAnnealingWarmupLR', '.kind = "cosine"')):
            opt = optimizer()
            scheduler = getattr(colossalai, name)(opt, total_steps=STEPS, warmup_steps=warmup)
            yield f'Colossal-AI {name} {warmup}', ours, warmup, 0, 'kColossalAi', rates(opt,
                                                                                      scheduler)
        opt = optimizer()
        scheduler = colossalai.CosineAnnealingWarmupLR(opt, STEPS, warmup, eta_min=0.1)
        yield (f'Colossal-AI CosineAnnealingWarmupLR eta_min {warmup}',
               '.kind = "cosine", .min_lr = 0.1', warmup, 0, 'kColossalAi', rates(opt, scheduler))
        for style in ('linear', 'cosine', 'constant'):
            opt = optimizer()
            scheduler = flagai.AnnealingLR(opt, start_lr=LR, warmup_iter=warmup, num_iters=STEPS,
                                           decay_style=style)
            yield (f'FlagAI AnnealingLR {style} {warmup}', f'.kind = "{style}", .min_lr = 0.05', warmup,
                   0, 'kFlagAi', [float(rate) for rate in rates(opt, scheduler)])
        for style in ('linear', 'cosine', 'constant', 'inverse-square-root'):
            if style == 'inverse-square-root' and warmup == 0:
                continue  # its timescale is 1 then: .timescale
            opt = optimizer()
            opt.param_groups[0].update(max_lr=LR, min_lr=0.02, wd_mult=1.0, lr_mult=1.0)
            scheduler = megatron.OptimizerParamScheduler(
                opt, init_lr=0.01, max_lr=LR, min_lr=0.02, lr_warmup_steps=warmup,
                lr_decay_steps=STEPS, lr_decay_style=style, start_wd=0, end_wd=0, wd_incr_steps=1,
                wd_incr_style='constant')
            step = types.SimpleNamespace(step=lambda: scheduler.step(1))
            ours = style.replace('inverse-square-root', 'inverse_sqrt')
            yield (f'Megatron-LM {style} {warmup}',
                   f'.kind = "{ours}", .min_lr = 0.02, .warmup_min_lr = 0.01', warmup, -1, None,
                   rates(opt, step))


# As torch had it while Colossal-AI's schedulers were written: newer versions compute the first rate
# of a scheduler within another one by a recursion from before it, above lr.
def first_rate(get_lr):
    def rates_of(self):
        if self.last_epoch == 0:
            return [group['lr'] for group in self.optimizer.param_groups]
        return get_lr(self)
    return rates_of


def main():
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    cosine.get_lr = first_rate(cosine.get_lr)
    colossalai, flagai, megatron = sys.argv[1:]
    logging = types.ModuleType('colossalai.logging')
    logging.get_dist_logger = None
    sys.modules['colossalai'] = types.ModuleType('colossalai')
    sys.modules['colossalai.logging'] = logging
    folder = colossalai + '/colossalai/nn/lr_scheduler/'
    pack = types.ModuleType('lr')
    pack.__path__ = [folder]
    sys.modules['lr'] = pack
    load('lr.delayed', folder + 'delayed.py')
    schedulers = types.SimpleNamespace(
        LinearWarmupLR=load('lr.linear', folder + 'linear.py').LinearWarmupLR,
        CosineAnnealingWarmupLR=load('lr.cosine', folder + 'cosine.py').CosineAnnealingWarmupLR)
    utils = types.ModuleType('megatron.core.utils')
    utils.log_single_rank = lambda *_: None
    sys.modules['megatron.core.utils'] = utils
    parameters = load('megatron_schedulers',
                      megatron + '/megatron/core/optimizer_param_scheduler.py')
    print('''// SPDX-License-Identifier: Apache-2.0
// Written by schedule_golden.py: learning rates of published schedulers, step by step.
#ifndef TESSERA_OPTIM_TESTDATA_SCHEDULE_GOLDEN_H_
#define TESSERA_OPTIM_TESTDATA_SCHEDULE_GOLDEN_H_

#include <vector>

#include "optim/schedule.h"

namespace tessera::optim {

struct ScheduleGolden {
  const char* name;
  ScheduleConfig config;
  std::vector<double> rates;
};

inline std::vector<ScheduleGolden> ScheduleGoldens() {
  return {''')
    for name, ours, warmup, offset, counting, values in cases(
            schedulers, load('fa', flagai + '/flagai/schedulers.py'), parameters):
        fields = dict(part.strip().split(' = ', 1) for part in ours.split(', '))
        fields.update({'.lr': '0.5', '.total_steps': '20'})
        if warmup:
            fields['.warmup_steps'] = str(warmup)
        if offset:
            fields['.offset'] = str(offset)
        if counting:
            fields['.counting'] = f'ScheduleCounting::{counting}'
        order = ['.kind', '.lr', '.min_lr', '.warmup_steps', '.total_steps', '.warmup_type',
                 '.warmup_min_lr', '.offset', '.counting', '.cycles', '.power', '.timescale',
                 '.decay_steps', '.decay_type']
        config = ', '.join(f'{key} = {fields[key]}' for key in order if key in fields)
        assert not math.isnan(sum(values))
        print('      {"%s", {%s}, {%s}},' %
              (name, config, ', '.join(repr(float(value)) for value in values)))
    print('''  };
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_TESTDATA_SCHEDULE_GOLDEN_H_''')


main()
