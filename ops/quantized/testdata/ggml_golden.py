# SPDX-License-Identifier: Apache-2.0
"""Writes ops/quantized/testdata/ggml_golden.h: blocks of random bytes and the float32 numbers that
GGML's Python package (gguf 0.19) decodes them to, and how far from random numbers it encodes.

    python3 ggml_golden.py | clang-format > ggml_golden.h
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

TYPES = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q2_K, Type.Q3_K, Type.Q4_K,
         Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS]
# Where the float16 numbers of a block are.
HALVES = {Type.Q4_1: (0, 2), Type.Q5_1: (0, 2), Type.Q2_K: (80, 82), Type.Q3_K: (108,),
          Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}
ENCODED = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]


def blocks_of(kind, rng):
    columns, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (256 // columns, size), dtype=np.uint8)
    for at in HALVES.get(kind, (0,)):
        halves = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = halves.reshape(-1, 1).view(np.uint8)
    return blocks


# A number that the test makes, too: every float32 of it is exact.
def sample(i):
    return ((i * 2654435761 % 2**32) >> 8) / 2**23 - 1


def main():
    rng = np.random.default_rng(7)
    print('// SPDX-License-Identifier: Apache-2.0')
    print('// Written by ggml_golden.py.')
    print('#ifndef TESSERA_OPS_QUANTIZED_TESTDATA_GGML_GOLDEN_H_')
    print('#define TESSERA_OPS_QUANTIZED_TESTDATA_GGML_GOLDEN_H_\n')
    print('#include <cstdint>\n#include <string_view>\n#include <vector>\n')
    print('namespace tessera {\n')
    print('struct DecodedBlocks {\n  std::string_view type;\n  std::vector<uint8_t> bytes;\n'
          '  std::vector<uint32_t> bits;  // of float32\n};')
    print('// 256 columns each.\ninline const std::vector<DecodedBlocks> kDecodedBlocks = {')
    for kind in TYPES:
        blocks = blocks_of(kind, rng)
        values = dequantize(blocks, kind).reshape(-1)
        assert np.isfinite(values).all() and values.dtype == np.float32 and len(values) == 256
        print(f'    {{"{kind.name.lower()}", {{')
        print(', '.join(str(byte) for byte in blocks.reshape(-1)))
        print('    }, {')
        print(', '.join(f'{bits:#x}' for bits in values.view(np.uint32)))
        print('    }},')
    print('};\n')
    print('// The mean squared error of 4096 numbers that are encoded and decoded: number i is\n'
          '// ((i * 2654435761 mod 2^32) >> 8) / 2^23 - 1.')
    print('struct EncodingError {\n  std::string_view type;\n  double error;\n};')
    print('inline constexpr EncodingError kEncodingErrors[] = {')
    x = np.array([sample(i) for i in range(4096)], dtype=np.float32)
    for kind in ENCODED:
        back = dequantize(quantize(x.reshape(16, 256), kind), kind).reshape(-1)
        error = np.mean((x.astype(np.float64) - back) ** 2)
        print(f'    {{"{kind.name.lower()}", {error!r}}},'.replace('np.float64(', '').replace(')', ''))
    print('};\n\n}  // namespace tessera\n')
    print('#endif  // TESSERA_OPS_QUANTIZED_TESTDATA_GGML_GOLDEN_H_')


main()
