// SPDX-License-Identifier: Apache-2.0
// The ways of splitting text before byte-level BPE that have a name: GGUF files give the name, a
// tokenizer.json spells the pattern out. Another pattern works there, but has no name for a GGUF.
//
//   for (const SplitPattern& known : kSplitPatterns) ... known.name, known.pattern ...
#ifndef TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_
#define TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_

#include <string_view>

namespace tessera::data {

struct SplitPattern {
  std::string_view name;        // in GGUF
  std::string_view pattern;     // a regular expression; "": GPT-2's own (gpt2_split.h)
  bool composes = false;        // texts are NFC
  bool ignores_merges = false;  // a word that is a token needs no merging
  bool splits_digits = false;   // each digit is a word, before the pattern is looked for
};

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// OpenAI's o200k_base.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr SplitPattern kSplitPatterns[] = {
    {"gpt-2", ""},
    {"llama-bpe", kLlama3Pattern, /*composes=*/false, /*ignores_merges=*/true},
    {"dbrx", kLlama3Pattern},
    {"qwen2", kQwen2Pattern, /*composes=*/true},
    {"deepseek-r1-qwen", kQwen2Pattern},
    {"smollm", "", /*composes=*/false, /*ignores_merges=*/false, /*splits_digits=*/true},
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_
