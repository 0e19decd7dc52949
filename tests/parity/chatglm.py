# SPDX-License-Identifier: Apache-2.0
"""ChatGLM2 and ChatGLM3 in PyTorch, written from their published format (github.com/THUDM/ChatGLM2-6B), for
`llama_model.py`: the names of their files, queries, keys and values in one projection, half of a head turned by
neighbouring pairs, the gate before what it multiplies in one projection.

    model = ChatGlm(config)      # the keys of config.json
    logits, loss, states = model(input_ids, labels, attention_mask, position_ids)
"""
import math

import torch
from torch import nn
from torch.nn import functional


def group(**modules):
    return nn.ModuleDict(modules)


class RmsNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c["hidden_size"]))
        self.epsilon = c["layernorm_epsilon"]

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner, features = c["hidden_size"], c["ffn_hidden_size"], c["kv_channels"]
        self.heads, self.groups, self.features = c["num_attention_heads"], c["multi_query_group_num"], features
        whole = (self.heads + 2 * self.groups) * features
        linear = c["add_bias_linear"]
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(c), RmsNorm(c)
        self.self_attention = group(query_key_value=nn.Linear(width, whole, linear or c["add_qkv_bias"]),
                                    dense=nn.Linear(self.heads * features, width, linear))
        self.mlp = group(dense_h_to_4h=nn.Linear(width, 2 * inner, linear),
                         dense_4h_to_h=nn.Linear(inner, width, linear))

    def turned(self, x_BTHD, angles_BTF):
        """The first half of each head, by pairs of neighbours."""
        first, rest = x_BTHD.chunk(2, dim=-1)
        even, odd = first[..., 0::2], first[..., 1::2]
        cos, sin = angles_BTF.cos()[:, :, None], angles_BTF.sin()[:, :, None]
        pairs = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
        return torch.cat([pairs.flatten(-2), rest], dim=-1)

    def attention(self, x_BTE, angles_BTF, sees_BTT):
        batch, tokens, _ = x_BTE.shape
        mixed = self.self_attention["query_key_value"](x_BTE).view(batch, tokens, -1, self.features)
        query, key, value = mixed.split([self.heads, self.groups, self.groups], dim=2)
        query, key = (self.turned(t, angles_BTF) for t in (query, key))
        query = query.unflatten(2, (self.groups, -1))  # neighbouring heads share one of keys
        scores = torch.einsum("btgqd,bsgd->bgqts", query, key) / math.sqrt(self.features)
        weights = scores.masked_fill(~sees_BTT[:, None, None], float("-inf")).softmax(-1)
        mixed = torch.einsum("bgqts,bsgd->btgqd", weights, value)
        return self.self_attention["dense"](mixed.flatten(2))

    def forward(self, x, angles, sees):
        x = x + self.attention(self.input_layernorm(x), angles, sees)
        gate, up = self.mlp["dense_h_to_4h"](self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self.mlp["dense_4h_to_h"](functional.silu(gate) * up)


class ChatGlm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        layers = nn.ModuleList(Layer(c) for _ in range(c["num_layers"]))
        self.transformer = group(
            embedding=group(word_embeddings=nn.Embedding(c["padded_vocab_size"], c["hidden_size"])),
            encoder=group(layers=layers, final_layernorm=RmsNorm(c)),
            output_layer=nn.Linear(c["hidden_size"], c["padded_vocab_size"], bias=False))

    def inverse_frequencies(self):
        turning = self.config["kv_channels"] // 2
        base = 10000 * self.config.get("rope_ratio", 1)  # as ChatGLM3 and GLM-4 have it
        return base ** (-torch.arange(0, turning, 2, dtype=torch.float64) / turning)

    def forward(self, input_ids, labels, attention_mask=None, position_ids=None):
        tokens = input_ids.shape[1]
        kept = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        places = torch.arange(tokens).expand_as(input_ids) if position_ids is None else position_ids
        # Padding sees everything, so that no row of weights is empty.
        sees = (kept[:, None, :] * torch.ones(tokens, tokens).tril() - kept[:, :, None] + 1) > 0.5
        angles = places[..., None] * self.inverse_frequencies()
        x = self.transformer["embedding"]["word_embeddings"](input_ids)
        for layer in self.transformer["encoder"]["layers"]:
            x = layer(x, angles, sees)
        states = self.transformer["encoder"]["final_layernorm"](x)
        logits = self.transformer["output_layer"](states)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return logits, loss, states
