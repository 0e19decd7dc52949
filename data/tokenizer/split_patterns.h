// SPDX-License-Identifier: Apache-2.0
// The ways of splitting text before byte-level BPE that have a name: GGUF files give the name, a
// tokenizer.json spells the pattern out. Another pattern works there, but has no name for a GGUF.
//
//   for (const SplitPattern& known : kSplitPatterns) ... known.name, known.pattern ...
#ifndef TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_
#define TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_

#include <span>
#include <string_view>

namespace tessera::data {

struct SplitOptions {
  bool composes = false;        // texts are NFC
  bool ignores_merges = false;  // a word that is a token needs no merging
  bool begins = false;          // texts begin with BOS where a GGUF does not say
  bool splits_digits = false;   // each digit is a word, before the pattern is looked for
  // The matches of each in turn are words; the pattern is looked for between them.
  std::span<const std::string_view> first = {};
};

struct SplitPattern {
  std::string_view name;     // in GGUF
  std::string_view pattern;  // a regular expression; "": GPT-2's own (gpt2_split.h)
  SplitOptions options = {};
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

// Mistral's Tekken.
inline constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen3.5's: marks belong to words.
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
// MiniCPM5's, behind the first of DeepSeek's.
inline constexpr std::string_view kMiniCpm5Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek-V3's.
inline constexpr std::string_view kDeepSeekFirst[] = {R"(\p{N}{1,3})",
                                                      R"([一-龥぀-ゟ゠-ヿ]+)"};
inline constexpr std::string_view kDeepSeekPattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek-Coder's.
inline constexpr std::string_view kDeepSeekCoderFirst[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)"};
// DeepSeek-LLM's, as llama.cpp has them.
inline constexpr std::string_view kDeepSeekLlmFirst[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", R"([一-龥ࠀ-一가-퟿]+)"};
// Viking's.
inline constexpr std::string_view kVikingFirst[] = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
// What llama.cpp does for a file that names nothing better.
inline constexpr std::string_view kDefaultFirst[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern,
                                                     R"(\p{N}+)"};

inline constexpr SplitPattern kSplitPatterns[] = {
    {"gpt-2", ""},
    {"llama-bpe", kLlama3Pattern, {.ignores_merges = true, .begins = true}},
    {"glm4", kLlama3Pattern, {.ignores_merges = true}},
    {"dbrx", kLlama3Pattern},
    {"qwen2", kQwen2Pattern, {.composes = true}},
    {"deepseek-r1-qwen", kQwen2Pattern},
    {"qwen35", kQwen35Pattern, {.composes = true}},
    {"smollm", "", {.splits_digits = true}},
    {"gpt-4o", kO200kPattern},
    {"tekken", kTekkenPattern, {.ignores_merges = true, .begins = true}},
    {"seed-coder", kSeedCoderPattern},
    {"deepseek-v3", kDeepSeekPattern, {.first = kDeepSeekFirst}},
    {"deepseek-llm", R"(\p{N}+)", {.first = kDeepSeekLlmFirst}},
    {"deepseek-coder", R"(\p{N})", {.first = kDeepSeekCoderFirst}},
    {"minicpm5",
     kMiniCpm5Pattern,
     {.ignores_merges = true, .first = std::span(kDeepSeekFirst).first(1)}},
    {"viking", R"(\p{N})", {.first = kVikingFirst}},
    {"default", "[0-9][0-9][0-9]", {.first = kDefaultFirst}},
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SPLIT_PATTERNS_H_
