#include "models/hub/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json_text.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace tessera::models {
namespace {

using data::SentencePieceSpec;
using nlohmann::json;
using Piece = SentencePieceSpec::Piece;  // its types are GGUF's types of tokens

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr int64_t kMaxTokens = 1 << 22;
// What llama.cpp gives tokens that have none of their own.
constexpr float kAddedScore = -1000;
constexpr float kUnusedScore = -10000;

// A way of splitting text before BPE: its name in GGUF, and its part of tokenizer.json.
struct Splitting {
  std::string_view name;
  std::string_view pattern;     // "": GPT-2's own
  bool composes = false;        // texts are NFC
  bool ignores_merges = false;  // a word that is a token needs no merging
};
constexpr Splitting kSplittings[] = {
    {"gpt-2", ""},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     /*composes=*/false, /*ignores_merges=*/true},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     /*composes=*/true},
};

std::string SplittingNames() {
  std::string names;
  for (const Splitting& known : kSplittings) {
    names += Concat(names.empty() ? "" : ", ", known.name);
  }
  return names;
}

// The tokens of a file.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;  // of SentencePiece's

  // With unused ones for all ids.
  explicit Tokens(int64_t count) {
    for (int64_t id = 0; id < count; ++id) texts.push_back(Concat("[PAD", id, "]"));
    types.assign(texts.size(), Piece::kUnused);
    scores.assign(texts.size(), kUnusedScore);
  }
  // False for an id that is none of theirs.
  bool Set(int64_t id, std::string text, int32_t type, float score = kAddedScore) {
    if (id < 0 || id >= std::ssize(texts)) return false;
    const auto at = static_cast<size_t>(id);
    texts[at] = std::move(text);
    types[at] = type;
    scores[at] = score;
    return true;
  }
  // Whether it only fills the vocabulary up.
  bool IsPadding(size_t id) const {
    return types[id] == Piece::kUnused && texts[id] == Concat("[PAD", id, "]");
  }
  static bool IsAdded(int32_t type) {
    return type == Piece::kControl || type == Piece::kUserDefined;
  }
};

StatusOr<Tokens> ReadTokens(const GgufFile& file) {
  Tokens tokens(0);
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.tokens", &tokens.texts));
  const size_t count = tokens.texts.size();
  tokens.types.assign(count, Piece::kNormal);
  tokens.scores.assign(count, 0);
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.token_type", &tokens.types));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.scores", &tokens.scores));
  if (count == 0 || static_cast<int64_t>(count) > kMaxTokens || tokens.types.size() != count ||
      tokens.scores.size() != count) {
    return InvalidArgument(file.path(),
                           ": 'tokenizer.ggml.tokens', 'token_type' and 'scores' have ", count,
                           ", ", tokens.types.size(), " and ", tokens.scores.size(), " elements");
  }
  return tokens;
}

// The text of the token that a key names; nullopt: there is no such key.
StatusOr<std::optional<std::string>> TokenAt(const GgufFile& file, const Tokens& tokens,
                                             std::string_view key) {
  int64_t id = -1;
  TESSERA_RETURN_IF_ERROR(file.Read(key, &id));
  if (file.FindValue(key) == nullptr) return std::optional<std::string>();
  if (id < 0 || id >= std::ssize(tokens.texts)) {
    return InvalidArgument(file.path(), ": key '", key, "': there is no token ", id);
  }
  return std::optional(tokens.texts[static_cast<size_t>(id)]);
}

struct Role {
  const char* name;  // in tokenizer_config.json
  std::string_view key;
};
constexpr Role kRoles[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                           {"pad_token", "tokenizer.ggml.padding_token_id"}};

// tokenizer_config.json.
StatusOr<json> ConfigOf(const GgufFile& file, const Tokens& tokens, bool add_bos) {
  json config = json::object();
  for (const Role& role : kRoles) {
    TESSERA_ASSIGN_OR_RETURN(const auto token, TokenAt(file, tokens, role.key));
    if (token) config[role.name] = *token;
  }
  bool add_eos = false;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_bos_token", &add_bos));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_eos_token", &add_eos));
  config["add_bos_token"] = add_bos && config.contains("bos_token");
  config["add_eos_token"] = add_eos && config.contains("eos_token");
  return config;
}

std::string Text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// ---- Byte-level BPE ----------------------------------------------------------------------------

std::string PreTokenizerText(const Splitting& splitting) {
  const bool own = splitting.pattern.empty();
  json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", false},
                {"use_regex", own}};
  if (own) return bytes.dump();
  json split = {{"type", "Split"},
                {"pattern", {{"Regex", splitting.pattern}}},
                {"behavior", "Isolated"},
                {"invert", false}};
  json steps = json::array();
  steps.push_back(std::move(split));
  steps.push_back(std::move(bytes));
  return json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}.dump();
}

// The texts that a row of one or two is made of, with what begins and ends each.
std::string PostProcessorText(const json& config, const Tokens& tokens) {
  const auto id_of = [&](const char* flag, const char* name) {
    if (!config[flag].get<bool>()) return int32_t{-1};
    const auto at = std::find(tokens.texts.begin(), tokens.texts.end(), config[name]);
    return static_cast<int32_t>(at - tokens.texts.begin());
  };
  const int32_t bos = id_of("add_bos_token", "bos_token");
  const int32_t eos = id_of("add_eos_token", "eos_token");
  if (bos < 0 && eos < 0) return "null";
  const auto row = [&](bool pair) {
    data::RowTemplate items;
    for (int32_t i = 0; i < (pair ? 2 : 1); ++i) {
      if (bos >= 0) items.items.push_back({bos, i});
      items.items.push_back({i == 0 ? data::RowTemplate::kFirst : data::RowTemplate::kSecond, i});
      if (eos >= 0) items.items.push_back({eos, i});
    }
    return items;
  };
  return data::TemplateJson(row(false), row(true),
                            [&](int32_t id) { return tokens.texts[static_cast<size_t>(id)]; });
}

StatusOr<const Splitting*> SplittingOf(const GgufFile& file) {
  // Files that are older than the key.
  std::string architecture;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
  std::string name = architecture == "gpt2" ? "gpt-2" : architecture;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.pre", &name));
  if (name == "llama3" || name == "llama-v3") name = "llama-bpe";
  for (const Splitting& known : kSplittings) {
    if (known.name == name) return &known;
  }
  return InvalidArgument(file.path(), ": key 'tokenizer.ggml.pre': '", name, "' is not supported; ",
                         SplittingNames(), " are");
}

Status WriteBpe(const GgufFile& file, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const Splitting* splitting, SplittingOf(file));
  TESSERA_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(file));
  TESSERA_ASSIGN_OR_RETURN(json config, ConfigOf(file, tokens, /*add_bos=*/false));
  config["tokenizer_class"] =
      splitting->pattern.empty() ? "GPT2Tokenizer" : "PreTrainedTokenizerFast";
  std::vector<std::string> merges;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.merges", &merges));

  std::vector<std::pair<int32_t, std::string>> vocab;
  data::TokenizerJson whole;
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    const std::string& text = tokens.texts[i];
    const auto id = static_cast<int32_t>(i);
    const int32_t type = tokens.types[i];
    if (tokens.IsPadding(i)) continue;
    if (Tokens::IsAdded(type)) {
      whole.added_tokens.push_back({.content = text, .id = id, .special = type == Piece::kControl});
    }
    // An added token that is no row of bytes stands behind the vocabulary.
    if (!Tokens::IsAdded(type) || data::BytesOfPiece(text)) vocab.emplace_back(id, text);
  }
  if (splitting->composes) whole.normalizer = R"({"type": "NFC"})";
  whole.pre_tokenizer = PreTokenizerText(*splitting);
  whole.post_processor = PostProcessorText(config, tokens);
  whole.decoder =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})";
  whole.model =
      Concat(R"({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": )",
             R"(null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, )",
             R"("ignore_merges": )", data::JsonBool(splitting->ignores_merges),
             ",\n\"vocab\": ", data::VocabJson(std::move(vocab)), ",\n\"merges\": [");
  for (size_t i = 0; i < merges.size(); ++i) {
    whole.model += i == 0 ? "" : ", ";
    whole.model += data::JsonQuoted(merges[i]);
  }
  whole.model += "]}";
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, "tokenizer.json"), whole.Text()));
  return WriteFileAtomically(JoinPath(folder, "tokenizer_config.json"), Text(config));
}

// The steps of a pre_tokenizer, without what is of no consequence: how offsets are trimmed.
json StepsOf(const json& pre_tokenizer) {
  json steps = json::array();
  if (pre_tokenizer.is_object() && pre_tokenizer.contains("pretokenizers")) {
    steps = pre_tokenizer["pretokenizers"];
  } else {
    steps.push_back(pre_tokenizer);
  }
  for (json& step : steps) {
    if (!step.is_object() || !step.contains("type") || step["type"] != "ByteLevel") continue;
    step.erase("trim_offsets");
    if (!step.contains("use_regex")) step["use_regex"] = true;  // older files
  }
  return steps;
}

StatusOr<const Splitting*> SplittingOf(const json& root, const std::string& where) {
  const json normalizer = root.value("normalizer", json());
  const bool composes = normalizer == json{{"type", "NFC"}};
  const bool ignores_merges = root["model"].value("ignore_merges", json()) == true;
  const json steps = StepsOf(root.value("pre_tokenizer", json()));
  for (const Splitting& known : kSplittings) {
    if (steps == StepsOf(json::parse(PreTokenizerText(known))) &&
        (composes || normalizer.is_null()) && composes == known.composes &&
        ignores_merges == known.ignores_merges) {
      return &known;
    }
  }
  return InvalidArgument(where, ": splits text in a way that GGUF files cannot name; ",
                         SplittingNames(), " can be");
}

StatusOr<std::vector<std::string>> MergesOf(const json& model, const std::string& where) {
  std::vector<std::string> merges;
  for (const json& merge : model.value("merges", json::array())) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      return InvalidArgument(where, ": model.merges: neither \"a b\" nor [\"a\", \"b\"]");
    }
  }
  return merges;
}

Status TooMany(const std::string& where, int64_t id, size_t vocab_size) {
  return InvalidArgument(where, ": token ", id, " is outside of the model's vocabulary (",
                         vocab_size, ")");
}

// A kind of tokenizer, as GGUF files describe it.
struct Described {
  std::string model;
  std::string pre = {};
  Tokens tokens;
  std::vector<std::string> merges = {};
  bool has_scores = false;
};

StatusOr<Described> DescribeBpe(const data::Tokenizer& tokenizer, const std::string& text,
                                const std::string& where, int64_t vocab_size) {
  TESSERA_ASSIGN_OR_RETURN(json root, data::ParseJson(text, where));
  if (!root.is_object() || !root.contains("model") || !root["model"].is_object() ||
      root["model"].value("type", json("BPE")) != "BPE" ||
      root["model"].value("byte_fallback", json()) == true) {
    return InvalidArgument(
        where, ": is no byte-level BPE, the only tokenizer.json that GGUF files can hold");
  }
  Described made = {.model = "gpt2", .tokens = Tokens(vocab_size)};
  TESSERA_ASSIGN_OR_RETURN(const Splitting* splitting, SplittingOf(root, where));
  made.pre = splitting->name;
  TESSERA_ASSIGN_OR_RETURN(made.merges, MergesOf(root["model"], where));
  for (const auto& [piece, id] : root["model"]["vocab"].items()) {
    if (!made.tokens.Set(id.get<int64_t>(), piece, Piece::kNormal)) {
      return TooMany(where, id.get<int64_t>(), made.tokens.texts.size());
    }
  }
  for (const json& token : root.value("added_tokens", json::array())) {
    const int32_t type =
        token.value("special", json()) == true ? Piece::kControl : Piece::kUserDefined;
    const int64_t id = token["id"].get<int64_t>();
    if (!made.tokens.Set(id, token["content"].get<std::string>(), type)) {
      return TooMany(where, id, made.tokens.texts.size());
    }
  }
  for (const data::SpecialToken& token : tokenizer.special_tokens()) {
    if (!made.tokens.Set(token.id, token.content, Piece::kControl)) {
      return TooMany(where, token.id, made.tokens.texts.size());
    }
  }
  return made;
}

StatusOr<Described> DescribeBytes(const data::Tokenizer& tokenizer, const std::string& where,
                                  int64_t vocab_size) {
  Described made = {.model = "gpt2", .pre = "gpt-2", .tokens = Tokens(vocab_size)};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool set =
        tokenizer.IsSpecial(id)
            ? made.tokens.Set(id, std::string(tokenizer.TokenBytes(id)), Piece::kControl)
            : made.tokens.Set(id, data::PieceOfBytes(tokenizer.TokenBytes(id)), Piece::kNormal);
    if (!set) return TooMany(where, id, made.tokens.texts.size());
  }
  return made;
}

// ---- SentencePiece -----------------------------------------------------------------------------

// Messages of Protocol Buffers.
void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
void AppendNumber(uint32_t field, int64_t value, std::string* out) {
  AppendVarint(field << 3, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}
void AppendFloat(uint32_t field, float value, std::string* out) {
  AppendVarint(field << 3 | 5, out);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void AppendBytes(uint32_t field, std::string_view bytes, std::string* out) {
  AppendVarint(field << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

// A SentencePiece model (sentencepiece_model.proto has the fields).
std::string ModelOf(const Tokens& tokens, bool dummy_prefix, bool remove_extra_whitespaces) {
  std::string model;
  bool has_bytes = false;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.IsPadding(id)) continue;
    std::string piece;
    AppendBytes(1, tokens.texts[id], &piece);
    AppendFloat(2, tokens.scores[id], &piece);
    if (tokens.types[id] != Piece::kNormal) AppendNumber(3, tokens.types[id], &piece);
    AppendBytes(1, piece, &model);
    has_bytes = has_bytes || tokens.types[id] == Piece::kByte;
  }
  std::string trainer;
  AppendNumber(3, SentencePieceSpec::kBpe, &trainer);
  AppendNumber(35, has_bytes ? 1 : 0, &trainer);
  AppendBytes(2, trainer, &model);
  std::string normalizer;
  AppendBytes(1, "identity", &normalizer);
  AppendNumber(3, dummy_prefix ? 1 : 0, &normalizer);
  AppendNumber(4, remove_extra_whitespaces ? 1 : 0, &normalizer);
  AppendBytes(3, normalizer, &model);
  return model;
}

Status WriteSentencePiece(const GgufFile& file, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(file));
  TESSERA_ASSIGN_OR_RETURN(json config, ConfigOf(file, tokens, /*add_bos=*/true));
  bool prefix = true;
  bool remove_extra = false;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_space_prefix", &prefix));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.remove_extra_whitespaces", &remove_extra));
  config["tokenizer_class"] = "LlamaTokenizer";
  json added = json::object();
  size_t end = 0;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] == Piece::kControl) {
      added[std::to_string(id)] = {{"content", tokens.texts[id]}, {"special", true}};
    }
    // A piece's id is its place.
    if (tokens.IsPadding(id)) continue;
    if (id != end++) {
      return InvalidArgument(file.path(), ": 'tokenizer.ggml.tokens': unused ids stand before ",
                             id);
    }
  }
  if (!added.empty()) config["added_tokens_decoder"] = std::move(added);
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, "tokenizer.model"),
                                              ModelOf(tokens, prefix, remove_extra)));
  return WriteFileAtomically(JoinPath(folder, "tokenizer_config.json"), Text(config));
}

StatusOr<Described> DescribeSentencePiece(const data::SentencePieceTokenizer& tokenizer,
                                          const std::string& where, int64_t vocab_size,
                                          GgufMetadata* keys) {
  const data::SentencePieceConfig& config = tokenizer.config();
  const SentencePieceSpec spec = data::ReadSentencePieceSpec(config.model);
  if (config.family != data::SentencePieceFamily::kLlama ||
      spec.model_type != SentencePieceSpec::kBpe || !spec.byte_fallback) {
    return InvalidArgument(where, ": is no BPE model with bytes as LLaMA's, which GGUF files need");
  }
  if (!spec.normalizer.character_map.empty()) {
    return InvalidArgument(where, ": its character map cannot be said in a GGUF file");
  }
  Described made = {
      .model = "llama", .pre = "default", .tokens = Tokens(vocab_size), .has_scores = true};
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    if (!made.tokens.Set(static_cast<int64_t>(i), piece.text, piece.type, piece.score)) {
      return TooMany(where, static_cast<int64_t>(i), made.tokens.texts.size());
    }
  }
  std::vector<data::AddedToken> added = config.added_tokens;
  for (const data::SpecialToken& token : tokenizer.special_tokens()) {
    added.push_back({.content = token.content, .id = token.id});
  }
  for (const data::AddedToken& token : added) {
    const int32_t type = token.special ? Piece::kControl : Piece::kUserDefined;
    if (token.id < std::ssize(spec.pieces)) {
      const auto at = static_cast<size_t>(token.id);
      if (token.special && data::IsTextPiece(spec.pieces[at])) made.tokens.types[at] = type;
    } else if (!made.tokens.Set(token.id, token.content, type)) {
      return TooMany(where, token.id, made.tokens.texts.size());
    }
  }
  const bool prefix = spec.normalizer.add_dummy_prefix && config.add_prefix_space;
  keys->emplace_back("tokenizer.ggml.add_space_prefix", prefix);
  keys->emplace_back("tokenizer.ggml.remove_extra_whitespaces",
                     spec.normalizer.remove_extra_whitespaces);
  return made;
}

// ---- Both --------------------------------------------------------------------------------------

// As the folder's own model has it, whatever lies beside it.
StatusOr<std::unique_ptr<data::Tokenizer>> LoadFolder(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const auto shown, data::TokenizerFolder::Open(folder));
  if (data::FindSentencePieceFile(shown) != nullptr) {
    return data::SentencePieceTokenizer::Load(folder);
  }
  return data::LoadTokenizer(folder);
}

StatusOr<Described> Describe(const data::Tokenizer& tokenizer, const std::string& folder,
                             int64_t vocab_size, GgufMetadata* keys) {
  if (const auto* pieces = dynamic_cast<const data::SentencePieceTokenizer*>(&tokenizer)) {
    return DescribeSentencePiece(*pieces, JoinPath(folder, pieces->config().model_file), vocab_size,
                                 keys);
  }
  if (dynamic_cast<const data::ByteTokenizer*>(&tokenizer) != nullptr) {
    return DescribeBytes(tokenizer, folder, vocab_size);
  }
  for (const data::TokenizerFile& file : tokenizer.FilesToSave()) {
    if (file.name != "tokenizer.json") continue;
    return DescribeBpe(tokenizer, file.content, JoinPath(folder, file.name), vocab_size);
  }
  return InvalidArgument(folder, ": this kind of tokenizer cannot be said in a GGUF file");
}

// The tokens that stand around a prompt.
void AddRow(const data::Tokenizer& tokenizer, GgufMetadata* keys) {
  const data::RowTemplate* const row = tokenizer.row_template(/*pair=*/false);
  const bool has = row != nullptr && !row->items.empty();
  const bool bos = has && tokenizer.bos_id() && row->items.front().id == *tokenizer.bos_id();
  const bool eos = has && tokenizer.eos_id() && row->items.back().id == *tokenizer.eos_id();
  keys->emplace_back("tokenizer.ggml.add_bos_token", bos);
  keys->emplace_back("tokenizer.ggml.add_eos_token", eos);
}

// "": there is none.
StatusOr<std::string> ChatTemplateOf(const std::string& folder) {
  const std::string path = JoinPath(folder, kTemplateFile);
  if (PathExists(path)) return ReadFile(path);
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (!PathExists(config_path)) return std::string();
  TESSERA_ASSIGN_OR_RETURN(const json config, data::ReadJsonFile(config_path));
  const json text = config.is_object() ? config.value("chat_template", json()) : json();
  return text.is_string() ? text.get<std::string>() : std::string();
}

}  // namespace

Status WriteTokenizerOfGguf(const GgufFile& file, const std::string& folder) {
  std::string model = "none";
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.model", &model));
  if (model == "none" || model == "no_vocab") return OkStatus();
  if (model != "gpt2" && model != "llama") {
    return InvalidArgument(file.path(), ": key 'tokenizer.ggml.model': '", model,
                           "' is not supported; gpt2 and llama are");
  }
  std::string chat;
  TESSERA_RETURN_IF_ERROR(file.Read(kTemplateKey, &chat));
  if (!chat.empty()) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, kTemplateFile), chat));
  }
  TESSERA_RETURN_IF_ERROR(model == "gpt2" ? WriteBpe(file, folder)
                                          : WriteSentencePiece(file, folder));
  // What cannot be read again is not left there; other programs want files of their own.
  const auto loaded = data::LoadTokenizer(folder);
  if (loaded.ok()) return (*loaded)->Save(folder);
  return InvalidArgument(file.path(), ": its tokenizer cannot be read: ", Message(loaded.status()));
}

StatusOr<GgufMetadata> TokenizerMetadata(const std::string& folder, int64_t vocab_size) {
  GgufMetadata keys;
  if (!data::HasTokenizer(folder)) {
    keys.emplace_back("tokenizer.ggml.model", std::string("none"));
    return keys;
  }
  TESSERA_ASSIGN_OR_RETURN(const auto tokenizer, LoadFolder(folder));
  GgufMetadata more;
  TESSERA_ASSIGN_OR_RETURN(Described made, Describe(*tokenizer, folder, vocab_size, &more));
  const auto& types = made.tokens.types;
  const auto unknown = std::find(types.begin(), types.end(), Piece::kUnknown);
  keys.emplace_back("tokenizer.ggml.model", made.model);
  keys.emplace_back("tokenizer.ggml.pre", made.pre);
  const auto id = [&keys](std::string_view key, std::optional<int32_t> value) {
    if (value) keys.emplace_back(key, static_cast<uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", tokenizer->bos_id());
  id("tokenizer.ggml.eos_token_id", tokenizer->eos_id());
  if (unknown != types.end()) {
    id("tokenizer.ggml.unknown_token_id", static_cast<int32_t>(unknown - types.begin()));
  }
  id("tokenizer.ggml.padding_token_id", tokenizer->pad_id());
  keys.emplace_back("tokenizer.ggml.tokens", GgufArray(std::move(made.tokens.texts)));
  if (made.has_scores) {
    keys.emplace_back("tokenizer.ggml.scores", GgufArray(std::move(made.tokens.scores)));
  }
  keys.emplace_back("tokenizer.ggml.token_type", GgufArray(std::move(made.tokens.types)));
  if (!made.has_scores) {
    keys.emplace_back("tokenizer.ggml.merges", GgufArray(std::move(made.merges)));
  }
  AddRow(*tokenizer, &keys);
  keys.insert(keys.end(), more.begin(), more.end());
  TESSERA_ASSIGN_OR_RETURN(std::string chat, ChatTemplateOf(folder));
  if (!chat.empty()) keys.emplace_back(kTemplateKey, std::move(chat));
  return keys;
}

}  // namespace tessera::models
