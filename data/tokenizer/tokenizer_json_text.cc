// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer_json_text.h"

#include <algorithm>
#include <map>

#include "base/json_text.h"

namespace tessera::data {
namespace {

std::string AddedTokensText(std::vector<AddedToken> tokens) {
  SortById(&tokens);
  std::string out = "[";
  for (const AddedToken& token : tokens) {
    if (out.size() > 1) out += ",\n";
    out +=
        Concat("{\"id\": ", token.id, ", \"content\": ", JsonQuoted(token.content),
               ", \"single_word\": ", JsonBool(token.single_word),
               ", \"lstrip\": ", JsonBool(token.lstrip), ", \"rstrip\": ", JsonBool(token.rstrip),
               ", \"normalized\": ", JsonBool(token.normalized),
               ", \"special\": ", JsonBool(token.special), "}");
  }
  return out + "]";
}

}  // namespace

const char* JsonBool(bool value) { return value ? "true" : "false"; }

std::string TokenizerJson::Text() const {
  return Concat(
      "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n\"added_tokens\": ",
      AddedTokensText(added_tokens), ",\n\"normalizer\": ", normalizer,
      ",\n\"pre_tokenizer\": ", pre_tokenizer, ",\n\"post_processor\": ", post_processor,
      ",\n\"decoder\": ", decoder, ",\n\"model\": ", model, "\n}\n");
}

std::string BpeJson::Text() const {
  return Concat(
      "{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ", unk_token,
      ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": ",
      JsonBool(fuse_unk), ", \"byte_fallback\": ", JsonBool(byte_fallback),
      ", \"ignore_merges\": ", JsonBool(ignore_merges), ",\n\"vocab\": ", vocab, ",\n\"merges\": [",
      merges, "]}");
}

std::string VocabJson(std::vector<std::pair<int32_t, std::string>> vocab) {
  std::map<std::string, int32_t> last;
  for (const auto& [id, piece] : vocab) last[piece] = std::max(last[piece], id);
  std::sort(vocab.begin(), vocab.end());
  std::string out = "{";
  for (const auto& [id, piece] : vocab) {
    if (last[piece] != id) continue;
    if (out.size() > 1) out += ", ";
    out += JsonQuoted(piece);
    out += ": ";
    out += std::to_string(id);
  }
  return out + "}";
}

std::string TemplateJson(const RowTemplate& single, const RowTemplate& pair,
                         const std::function<std::string(int32_t)>& name_of) {
  std::map<int32_t, std::string> names;
  const auto items = [&](const RowTemplate& row) {
    std::string out = "[";
    for (const RowTemplate::Item& item : row.items) {
      if (out.size() > 1) out += ", ";
      std::string name = item.id == RowTemplate::kFirst ? "\"A\"" : "\"B\"";
      if (item.id >= 0) name = names[item.id] = JsonQuoted(name_of(item.id));
      out += Concat("{\"", item.id >= 0 ? "SpecialToken" : "Sequence", "\": {\"id\": ", name,
                    ", \"type_id\": ", item.type_id, "}}");
    }
    return out + "]";
  };
  std::string out = Concat("{\"type\": \"TemplateProcessing\", \"single\": ", items(single),
                           ", \"pair\": ", items(pair), ", \"special_tokens\": {");
  bool first = true;
  for (const auto& [id, name] : names) {
    out += Concat(first ? "" : ", ", name, ": {\"id\": ", name, ", \"ids\": [", id,
                  "], \"tokens\": [", name, "]}");
    first = false;
  }
  return out + "}}";
}

}  // namespace tessera::data
