#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the documented keys of other systems, each with a value that asks for something.

  make_keys.py TRANSFORMERS_4 TRANSFORMERS_5 DEEPSPEED ACCELERATE COLOSSALAI FLAGAI TRL_0 TRL_1

The arguments are the folders of the installed (or unpacked) packages. Writes keys/*.txt beside this
file: a key, a tab, and a value as JSON in each line.
"""
import ast
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Where a type alone gives no value that means something.
VALUES = {
    'accelerator_config': {'split_batches': True}, 'adafactor': True, 'lr_scheduler_kwargs': {},
    'adam_beta1': 0.8, 'adam_beta2': 0.98, 'lr_scheduler_type': 'linear', 'optim': 'adamw_torch',
    'eval_strategy': 'epoch', 'save_strategy': 'epoch', 'logging_strategy': 'epoch',
    'log_level': 'warning', 'log_level_replica': 'info', 'warmup_ratio': 0.1, 'warmup_steps': 3,
    'fsdp': 'full_shard', 'fsdp_config': {'fsdp_version': 2}, 'deepspeed': {}, 'debug': 'x',
    'deepspeed_config': {}, 'fsdp_min_num_params': 0, 'fsdp_transformer_layer_cls_to_wrap': None,
    'max_steps': 7, 'num_train_epochs': 2, 'do_train': False, 'do_eval': False,
    'save_safetensors': False, 'average_tokens_across_devices': False, 'use_cpu': True,
    'train_sampling_strategy': 'sequential', 'tf32': True, 'save_total_limit': 5,
    'dataloader_drop_last': True, 'hub_strategy': 'end', 'activation_checkpointing': True,
    'half_precision_backend': 'apex', 'fp16_backend': 'apex', 'report_to': 'wandb',
    'precision': 'bf16', 'pp_style': 'interleaved', 'communication_dtype': 'bf16', 'stage': 2,
    'placement_policy': 'auto', 'shard_param_frac': 1, 'offload_optim_frac': 0,
    'offload_param_frac': 0, 'master_weights': False, 'norm_type': 1, 'microbatch_size': 4,
    'sequence_parallelism_mode': 'ring', 'extra_dp_size': 2, 'env_type': 'pytorch', 'epochs': 3,
    'model_name': 'gpt-tiny', 'pytorch_device': 'cuda:0', 'warm_up': 0.1, 'load_type': 'best',
    'fp16': True, 'batch_size': 3, 'weight_decay': 0.25, 'checkpoint_activations': True,
    'deepspeed_activation_checkpointing': True, 'tokenizer': 'byte', 'optimizer_type': 'adam',
    'shuffle_dataset': False, 'resume_dataset': False, 'eps': 1e-6, 'save_optim': False,
    'save_rng': False, 'load_optim': False, 'load_rng': False, 'skip_iters': 2, 'seed': 5,
    'bmt_cpu_offload': True, 'bmt_async_load': True, 'bmt_pre_load': True, 'already_fp16': True,
    'lora': True, 'tensorboard': True, 'wandb': True, 'not_call_launch': True, 'save_dir': 'x',
    'initial_scale': 1024, 'min_scale': 2, 'max_scale': 2.0**20, 'backoff_factor': 0.25,
    'growth_factor': 4, 'growth_interval': 50, 'hysteresis': 3, 'max_norm': 0.5, 'stage_': 1,
    'gradient_as_bucket_view': False, 'overlap_communication': False, 'cpu_offload': False,
    'enable_async_reduce': False, 'num_microbatches': 2, 'tp_size': 2, 'pp_size': 2, 'sp_size': 2,
    'ep_size': 2,
    'clip_grad': 0.5, 'output_dir': 'x', 'load_dir': 'x', 'resume_from_checkpoint': 'x',
    'logging_steps': 2, 'save_steps': 2, 'eval_steps': 2, 'save_interval': 2,
    'eval_interval': 2, 'log_interval': 2, 'gradient_accumulation_steps': 4, 'warm_up_iters': 3,
    'num_model_chunks': 2, 'ddp_timeout': 100, 'IGNORE_INDEX': 3, 'include_for_metrics': ['x'],
    'past_index': 2, 'yaml_config': 'x', 'include_num_input_tokens_seen': 'all', 'lr': 0.5,
    'dtype': 'bfloat16', 'torch_dtype': 'bfloat16', 'zero_stage': 1, 'model_parallel_size': 2, 'zero_bucket_size_in_m': 3,
    'reduce_bucket_size_in_m': 3, 'num_checkpoints': 4,
}
PATHS = {
    'zero_optimization.stage': 1, 'fp16.loss_scale': 128, 'fp16.initial_scale_power': 4,
    'optimizer.type': 'SGD', 'optimizer.params.betas': [0.8, 0.99], 'optimizer.params.lr': 0.5,
    'optimizer.params.adam_w_mode': False, 'optimizer.params.bias_correction': False,
    'scheduler.type': 'WarmupDecayLR', 'scheduler.params.warmup_type': 'log', 'autotuning': {},
    'scheduler.params.total_num_steps': 40, 'scheduler.params.cos_min_ratio': 0.1,
    'scheduler.params.warmup_min_lr': 1e-5, 'scheduler.params.warmup_num_steps': 4,
    'communication_data_type': 'fp32', 'zero_optimization.offload_optimizer.device': 'cpu',
    'zero_optimization.offload_param.device': 'cpu', 'torch_autocast.dtype': 'bfloat16',
    'zero_optimization.offload_optimizer.ratio': 0.5, 'compute_environment': 'AMAZON_SAGEMAKER',
    'distributed_type': 'FSDP', 'mixed_precision': 'bf16', 'downcast_bf16': 'yes',
    'data_types.grad_accum_dtype': 'bf16', 'gradient_allreduce_op': 'sum',
    'seq_parallel_communication_data_type': 'bf16', 'keep_in_fp32_modules': ['x'],
    'train_batch_size': 6, 'train_micro_batch_size_per_gpu': 3, 'seed': 5,
    'tensor_parallel.autotp_size': 2, 'sequence_parallel_size': 2,
}


def fields(path, name):
    """The annotated members of a class, with their types."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return [(b.target.id, ast.unparse(b.annotation), b.value) for b in node.body
                    if isinstance(b, ast.AnnAssign)]
    raise SystemExit(f'{path} has no class {name}')


def arguments(path, name):
    """The parameters of a class's constructor, with their types."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == '__init__':
                    return [(a.arg, ast.unparse(a.annotation) if a.annotation else 'str')
                            for a in (method.args.args + method.args.kwonlyargs)[1:]]
    raise SystemExit(f'{path} has no class {name}')


def value_of(key, kind):
    name = key.rsplit('.', 1)[-1]
    if key in PATHS:
        return PATHS[key]
    if name in VALUES:
        return VALUES[name]
    if 'bool' in kind and 'str' not in kind.split('|')[0]:
        return True
    if 'int' in kind:
        return 2
    if 'float' in kind:
        return 0.5
    return 'x'


def write(system, keys):
    with open(os.path.join(HERE, 'keys', system + '.txt'), 'w') as out:
        for key, kind in dict(keys).items():
            value = value_of(key, kind)
            if value is not None:
                out.write(f'{key}\t{json.dumps(value)}\n')


def deepspeed(folder):
    """Top-level names, and those of the sections that are classes of their own."""
    runtime = os.path.join(folder, 'runtime')
    top = ['amp', 'autotuning', 'elasticity', 'flops_profiler', 'comms_logger', 'wandb',
           'comet', 'sparse_attention', 'curriculum_learning',
           'data_efficiency', 'compression_training', 'progressive_layer_drop', 'eigenvalue',
           'quantize_training', 'weight_quantization', 'hybrid_engine', 'compile', 'pipeline',
           'nebula', 'aio', 'train_batch_size', 'train_micro_batch_size_per_gpu',
           'gradient_accumulation_steps', 'sequence_parallel_size', 'vocabulary_size',
           'fp32_allreduce', 'use_node_local_storage', 'seed']
    constants = open(os.path.join(runtime, 'constants.py')).read()
    named = dict(re.findall(r'^([A-Z0-9_]+) = "([a-z0-9_]+)"', constants, re.M))
    scalars = ['ZERO_ALLOW_UNTESTED_OPTIMIZER', 'ZERO_FORCE_DS_CPU_OPTIMIZER', 'STEPS_PER_PRINT',
               'GRADIENT_ACCUMULATION_STEPS', 'MANAGED_GRADIENT_ACCUMULATION',
               'COMMUNICATION_DATA_TYPE', 'SEQ_PARALLEL_COMMUNICATION_DATA_TYPE',
               'PRESCALE_GRADIENTS', 'GRADIENT_PREDIVIDE_FACTOR', 'GRADIENT_ALLREDUCE_OP',
               'DISABLE_ALLGATHER', 'DISABLE_PYTHON_GC', 'DATALOADER_DROP_LAST',
               'USE_DATA_BEFORE_EXPERT_PARALLEL', 'LOG_LEVEL']
    keys = [(k, 'dict') for k in top] + [(named[s], 'bool') for s in scalars if s in named]
    keys += [('gradient_clipping', 'float'), ('dump_state', 'bool'), ('memory_breakdown', 'bool'),
             ('wall_clock_breakdown', 'bool'), ('sparse_gradients', 'bool'),
             ('data_types.grad_accum_dtype', 'str'), ('keep_in_fp32_modules', 'str')]
    keys += [(f'{section}.{k}', t) for section in ('tensorboard', 'csv_monitor') for k, t in
             (('enabled', 'bool'), ('output_path', 'str'), ('job_name', 'str'))]
    keys += [(f'checkpoint.{k}', 'bool') for k in
             ('tag_validation', 'load_universal', 'use_node_local_storage', 'parallel_write')]
    keys += [(f'torch_autocast.{k}', 'bool') for k in
             ('enabled', 'dtype', 'lower_precision_safe_modules')]
    keys += [('tensor_parallel.autotp_size', 'int'), ('tensor_parallel.tp_grain_size', 'int')]
    experts = os.path.join(folder, 'module_inject', 'auto_ep_config.py')
    keys += [(f'expert_parallel.{k}', t) for k, t, _ in fields(experts, 'AutoEPConfig')]
    precision = os.path.join(runtime, 'precision_config.py')
    keys += [(f'fp16.{k}', t) for k, t, _ in fields(precision, 'DeepSpeedFP16Config')]
    keys += [(f'bf16.{k}', t) for k, t, _ in fields(precision, 'DeepSpeedBF16Config')]
    zero = os.path.join(runtime, 'zero', 'config.py')
    offload = os.path.join(runtime, 'zero', 'offload_config.py')
    stage3 = re.findall(r'alias="(stage3_[a-z0-9_]+)"', open(zero).read())
    unprefixed = {a[len('stage3_'):] for a in stage3}
    for key, kind, _ in fields(zero, 'DeepSpeedZeroConfig'):
        if key not in unprefixed and not key.startswith('offload_'):
            keys.append((f'zero_optimization.{key}', kind))
    keys += [(f'zero_optimization.{k}', 'int') for k in stage3]
    for section, name in (('offload_param', 'DeepSpeedZeroOffloadParamConfig'),
                          ('offload_optimizer', 'DeepSpeedZeroOffloadOptimizerConfig')):
        keys += [(f'zero_optimization.{section}.{k}', t) for k, t, _ in fields(offload, name)]
    checkpointing = open(os.path.join(runtime, 'activation_checkpointing', 'config.py')).read()
    names = re.findall(r"^ACT_CHKPT_\w+ = '([a-z_]+)'", checkpointing, re.M)
    keys += [(f'activation_checkpointing.{k}', 'bool') for k in names]
    keys += [(f'optimizer.{k}', 'str') for k in ('type', 'legacy_fusion')]
    keys += [(f'optimizer.params.{k}', 'float') for k in
             ('lr', 'betas', 'eps', 'weight_decay', 'adam_w_mode', 'torch_adam', 'bias_correction',
              'amsgrad', 'max_coeff', 'min_coeff', 'freeze_step', 'max_grad_norm')]
    schedules = open(os.path.join(runtime, 'lr_schedules.py')).read()
    options = re.findall(r"^[A-Z0-9_]+ = '([a-z_0-9]+)'", schedules, re.M)
    keys += [('scheduler.type', 'str'), ('scheduler.params.last_batch_iteration', 'int'),
             ('scheduler.params.cos_min_ratio', 'float'),
             ('scheduler.params.warmup_min_ratio', 'float'),
             ('scheduler.params.total_num_steps', 'int')]
    keys += [(f'scheduler.params.{k}', 'float') for k in options
             if re.match('lr_range_test_|cycle_|decay_|warmup_', k)]
    return keys


def accelerate(folder):
    """A file's keys, and the sections' as the flags of `accelerate launch` have them."""
    commands = os.path.join(folder, 'commands')
    config = os.path.join(commands, 'config', 'config_args.py')
    keys = [(k, t) for name in ('BaseConfig', 'ClusterConfig') for k, t, _ in fields(config, name)
            if not k.endswith('_config')]
    launch = open(os.path.join(commands, 'launch.py')).read()
    flags = re.findall(r'add_argument\(\s*(?:"--[a-z_0-9-]+",\s*)*"--([a-z_0-9-]+)"', launch)
    cluster = open(os.path.join(commands, 'config', 'cluster.py')).read()
    for section in ('deepspeed', 'fsdp', 'mpirun', 'fp8', 'dynamo'):
        names = re.findall(rf'{section}_config\["([a-z_0-9]+)"\]', cluster)
        keys += [(f'{section}_config.{k}', 'str') for k in names]
    for flag in flags:
        for section in ('fsdp', 'megatron_lm', 'parallelism_config', 'fp8', 'dynamo'):
            if flag.startswith(section + '_'):
                home = section if section.endswith('_config') else section + '_config'
                keys.append((f'{home}.{flag}', 'str'))
    return keys + [('downcast_bf16', 'str')]


def main():
    t4, t5, ds, acc, cai, fai, trl0, trl1 = sys.argv[1:]
    os.makedirs(os.path.join(HERE, 'keys'), exist_ok=True)
    for system, folder in (('transformers4', t4), ('transformers5', t5)):
        path = os.path.join(folder, 'training_args.py')
        write(system, [(k, t) for k, t, _ in fields(path, 'TrainingArguments')])
    write('deepspeed', deepspeed(ds))
    write('accelerate', accelerate(acc))
    plugins = os.path.join(cai, 'booster', 'plugin')
    write('colossalai', [pair for file, name in (
        ('hybrid_parallel_plugin.py', 'HybridParallelPlugin'),
        ('moe_hybrid_parallel_plugin.py', 'MoeHybridParallelPlugin'),
        ('low_level_zero_plugin.py', 'LowLevelZeroPlugin'), ('gemini_plugin.py', 'GeminiPlugin'),
        ('torch_ddp_plugin.py', 'TorchDDPPlugin')) for pair in arguments(
            os.path.join(plugins, file), name)])
    trainer = arguments(os.path.join(fai, 'trainer.py'), 'Trainer')
    flags = re.findall(r"add_argument\(['\"]--([A-Za-z_0-9]+)['\"]",
                       open(os.path.join(fai, 'env_args.py')).read())
    write('trl', [(k, t) for folder in (trl0, trl1) for file, name in (
        ('trainer/sft_config.py', 'SFTConfig'), ('trainer/dpo_config.py', 'DPOConfig'),
        ('trainer/model_config.py', 'ModelConfig'), ('scripts/utils.py', 'ScriptArguments'))
        for k, t, _ in fields(os.path.join(folder, file), name)])
    write('flagai', trainer + [(k, 'str') for k in flags])


if __name__ == '__main__':
    main()
