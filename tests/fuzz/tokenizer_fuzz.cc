// SPDX-License-Identifier: Apache-2.0
// The files of every kind of tokenizer (data/tokenizer/), and a text of any bytes encoded by it.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/sequence_pair.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

constexpr std::string_view kText =
    "Hello  world, don't [MASK]</s> \xFF 12 深度 e\u0301 <extra_id_0>\n\tx";
const std::string kData = "data/tokenizer/testdata/";

bool LoadAndUse(const FuzzFolder& folder, std::string_view bytes) {
  const auto tokenizer = data::LoadTokenizer(folder.path());
  if (!tokenizer.ok()) return false;
  static const FuzzFolder saved;
  saved.Clear();
  if ((*tokenizer)->Save(saved.path()).ok()) {
    data::LoadTokenizer(saved.path()).status().IgnoreError();
  }
  try {
    const std::string_view end = bytes.substr(bytes.size() - bytes.size() % 64);
    for (const std::string_view text : {kText, end}) {
      const std::vector<int32_t> ids = (*tokenizer)->Encode(text);
      (*tokenizer)->Decode(ids, {.skip_special = true});
      data::EncodePair(**tokenizer, text, kText).status().IgnoreError();
    }
  } catch (const Error&) {
    // A pattern that cannot be matched, a text that grows without end (core/regex.h).
  }
  return true;
}

bool RunTokenizerJson(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"tokenizer.json", "tokenizer_config.json"});
  return LoadAndUse(folder, bytes);
}

std::vector<std::string> TokenizerJsonSeeds() {
  std::vector<std::string> seeds;
  for (const char* name :
       {"albert", "llama", "bert", "gpt", "variant_0", "variant_1", "variant_2"}) {
    seeds.push_back(FileOf(kData + "tokenizer_json/" + name + "/tokenizer.json"));
  }
  seeds.push_back(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"added_tokens":[]})");
  for (const char* name : {"gpt2", "roberta", "bert"}) {
    const std::string folder = kData + "transformers5/" + name;
    seeds.push_back(
        Joined({FileOf(folder + "/tokenizer.json"), FileOf(folder + "/tokenizer_config.json")}));
  }
  return seeds;
}

bool RunVocabularyLines(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"vocab.txt", "tokenizer_config.json", "added_tokens.json"});
  return LoadAndUse(folder, bytes);
}

std::vector<std::string> VocabularyLineSeeds() {
  const std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n,\n";
  return {lines, Joined({lines,
                         R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false,)"
                         R"( "added_tokens_decoder": {"9": {"content": "<x>"}}})",
                         R"({"<y>": 9})"})};
}

bool RunMerges(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes,
                  {"merges.txt", "vocab.json", "tokenizer_config.json", "special_tokens_map.json"});
  return LoadAndUse(folder, bytes);
}

std::vector<std::string> MergesSeeds() {
  return {
      Joined({"#version: 0.2\nH e\nl l\n", R"({"H":0,"e":1,"l":2,"o":3,"He":4,"ll":5})"}),
      Joined({"H e\n", R"({"H":0,"e":1,"He":2,"<s>":3,"</s>":4,"<pad>":5,"<unk>":6,"<mask>":7})",
              R"({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": true})",
              R"({"eos_token": {"content": "</s>"}})"})};
}

bool RunSentencePiece(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"spiece.model", "tokenizer_config.json", "added_tokens.json"});
  return LoadAndUse(folder, bytes);
}

std::vector<std::string> SentencePieceSeeds() {
  const std::string folder = kData + "sentence_piece/";
  return {FileOf(folder + "t5/spiece.model"),
          Joined({FileOf(folder + "albert/spiece.model"),
                  FileOf(folder + "albert/tokenizer_config.json"), R"({"<x>": 160})"}),
          Joined({FileOf(folder + "llama/tokenizer.model"),
                  R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})"})};
}

const FuzzTargetRegistration tokenizer_json({.name = "tokenizer_json",
                                             .run = RunTokenizerJson,
                                             .seeds = TokenizerJsonSeeds,
                                             .words = {std::string(kFileEnd),
                                                       "\"type\"",
                                                       "Sequence",
                                                       "normalizers",
                                                       "pretokenizers",
                                                       "Replace",
                                                       "Regex",
                                                       "String",
                                                       "Prepend",
                                                       "Strip",
                                                       "NFKC",
                                                       "NFD",
                                                       "Lowercase",
                                                       "StripAccents",
                                                       "BertNormalizer",
                                                       "Precompiled",
                                                       "ByteLevel",
                                                       "Metaspace",
                                                       "Split",
                                                       "Digits",
                                                       "Punctuation",
                                                       "Whitespace",
                                                       "Isolated",
                                                       "MergedWithNext",
                                                       "BPE",
                                                       "WordPiece",
                                                       "Unigram",
                                                       "merges",
                                                       "byte_fallback",
                                                       "TemplateProcessing",
                                                       "RobertaProcessing",
                                                       "null",
                                                       "true"}});
const FuzzTargetRegistration vocabulary_lines({.name = "vocab_txt",
                                               .run = RunVocabularyLines,
                                               .seeds = VocabularyLineSeeds,
                                               .words = {std::string(kFileEnd), "[UNK]", "##",
                                                         "added_tokens_decoder", "strip_accents",
                                                         "extra_special_tokens"}});
const FuzzTargetRegistration merges({.name = "merges_txt",
                                     .run = RunMerges,
                                     .seeds = MergesSeeds,
                                     .words = {std::string(kFileEnd), "#version", "Ġ",
                                               "RobertaTokenizer", "additional_special_tokens"}});
const FuzzTargetRegistration sentence_piece({.name = "sentence_piece",
                                             .run = RunSentencePiece,
                                             .seeds = SentencePieceSeeds,
                                             .words = {std::string(kFileEnd), "▁", "<0x41>",
                                                       "extra_ids", "ChatGLMTokenizer",
                                                       "XLMRobertaTokenizer", "legacy"}});

}  // namespace
}  // namespace tessera::fuzz
