// SPDX-License-Identifier: Apache-2.0
// `tessera embed`, `tessera rerank` and the server's addresses for the same: one meaning on all.
// What the vectors are, is models/open/text_encoder_test.cc's.
#include <cstring>
#include <sstream>

#include "net/http/http_client.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/cli/running_serve.h"

namespace tessera {
namespace {

using nlohmann::json;
using Vectors = std::vector<std::vector<float>>;

class TextVectorsTest : public CliRuns {
 protected:
  // A small BERT with words for its tokens.
  std::string Saved(const std::string& name, const std::string& architecture) {
    const json config = {{"model_type", "bert"},     {"architectures", {architecture}},
                         {"vocab_size", 11},         {"hidden_size", 8},
                         {"num_hidden_layers", 1},   {"num_attention_heads", 2},
                         {"intermediate_size", 12},  {"max_position_embeddings", 12},
                         {"initializer_range", 0.5}, {"num_labels", 1}};
    const auto model = models::BuildModel(config, {.seed = 5});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    EXPECT_TRUE(models::SaveModel(**model, Path(name), nullptr).ok());
    Write(name + "/vocab.txt",
          "[PAD]\n[UNK]\n[CLS]\n[SEP]\nred\ngreen\nblue\nand\nor\n:\n[MASK]\n");
    Write(name + "/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    return Path(name);
  }
  std::string SentenceTransformer() {
    const std::string folder = Saved("encoder", "BertModel");
    Write("encoder/modules.json",
          R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
              {"path": "pool", "type": "sentence_transformers.models.Pooling"},
              {"path": "unit", "type": "sentence_transformers.models.Normalize"}])");
    fs::create_directory(folder + "/pool");
    Write("encoder/pool/config.json", R"({"pooling_mode": ["mean", "max"]})");
    Write("encoder/config_sentence_transformers.json", R"({"prompts": {"query": "blue : "}})");
    return folder;
  }
  static Vectors FromNpy(const std::string& path, size_t columns) {
    const std::string bytes = Read(path);
    EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t begin = 10 + static_cast<unsigned char>(bytes[8]) +
                         256 * static_cast<size_t>(static_cast<unsigned char>(bytes[9]));
    EXPECT_EQ(begin % 64, 0u);
    EXPECT_NE(bytes.find("'descr': '<f4', 'fortran_order': False"), std::string::npos);
    Vectors rows((bytes.size() - begin) / (4 * columns), std::vector<float>(columns));
    EXPECT_NE(bytes.find(Concat("'shape': (", rows.size(), ", ", columns, ")")), std::string::npos);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(rows[i].data(), bytes.data() + begin + 4 * columns * i, 4 * columns);
    }
    return rows;
  }
  json Answer(const RunningServe& server, const std::string& path, const json& body, int status) {
    auto client = net::HttpClient::Open(server.url());
    EXPECT_TRUE(client.ok());
    const auto answer = client->Send({.method = "POST", .path = path, .body = body.dump()});
    EXPECT_TRUE(answer.ok());
    EXPECT_EQ(answer->status, status) << answer->body;
    return json::parse(answer->body, nullptr, false);
  }
};

TEST_F(TextVectorsTest, FilesAndServerHaveTheSameVectors) {
  const std::string folder = SentenceTransformer();
  const std::string texts = Write("texts.txt", "red and blue\n\ngreen\r\nred or green or blue");
  EXPECT_EQ(Output({"embed", folder, "--input", texts, "--output", Path("v.npy")}),
            Concat("4 vectors of 16 numbers in ", Path("v.npy"), "\n"));
  const Vectors vectors = FromNpy(Path("v.npy"), 16);
  ASSERT_EQ(vectors.size(), 4u);
  EXPECT_NE(vectors[0], vectors[1]);
  Output({"embed", folder, "--input", "-", "--output", Path("v.jsonl")}, {.stdin_path = texts});
  std::istringstream lines(Read(Path("v.jsonl")));
  std::string line;
  for (size_t i = 0; std::getline(lines, line); ++i) {
    const json object = json::parse(line);
    EXPECT_EQ(object["embedding"].get<std::vector<float>>(), vectors[i]);
    EXPECT_EQ(object["text"] == "green", i == 2);
  }
  // Of records, and other ways to make them.
  const std::string records = Write("t.jsonl", "{\"t\": \"green\"}\n{\"t\": \"\"}\n");
  Output({"embed", folder, "--input", records, "--json-key", "t", "--output", Path("r.npy")});
  EXPECT_EQ(FromNpy(Path("r.npy"), 16), (Vectors{vectors[2], vectors[1]}));
  const std::string one = Write("one.txt", "green\n");
  const auto with = [&](const Arguments& more, size_t columns) {
    Arguments arguments = {"embed",    folder,        "--input",    one,
                           "--output", Path("o.npy"), "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Output(arguments);
    return FromNpy(Path("o.npy"), columns)[0];
  };
  const std::string prompted = Write("p.txt", "blue : green\n");
  Output({"embed", folder, "--input", prompted, "--output", Path("p.npy")});
  const std::vector<float> query = FromNpy(Path("p.npy"), 16)[0];
  EXPECT_EQ(with({"--prompt-name", "query"}, 16), query);
  EXPECT_EQ(with({"--prompt", "blue : "}, 16), query);
  EXPECT_NE(with({"--normalize", "false"}, 16), vectors[2]);
  EXPECT_EQ(with({"--dimensions", "3"}, 3).size(), 3u);
  EXPECT_EQ(with({"--prompt", "blue : ", "--max-tokens", "3"}, 16), [&] {
    Output({"embed", folder, "--input", Write("b.txt", "blue\n"), "--output", Path("b.npy")});
    return FromNpy(Path("b.npy"), 16)[0];
  }());

  const RunningServe server(folder, Path("log"));
  const json all = Answer(server, "/v1/embeddings",
                          {{"input", {"red and blue", "", "green", "red or green or blue"}}}, 200);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all["data"][i]["embedding"].get<std::vector<float>>(), vectors[i]);
  }
  const auto asked = [&](json more) {
    more["input"] = "green";
    return Answer(server, "/v1/embeddings", more, 200)["data"][0]["embedding"]
        .get<std::vector<float>>();
  };
  EXPECT_EQ(asked({{"prompt_name", "query"}}), query);
  EXPECT_EQ(asked({{"dimensions", 3}}), with({"--dimensions", "3"}, 3));
  EXPECT_EQ(asked({{"normalize", false}}), with({"--normalize", "false"}, 16));
  // Ids are cut as texts are: where the request says so, and to what the folder's model reads.
  const auto of_ids = [&](std::vector<int64_t> ids, json more) {
    more["input"] = ids;
    return Answer(server, "/v1/embeddings", more, 200);
  };
  const std::vector<int64_t> ids = {2, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5};
  std::vector<int64_t> longer = ids;
  longer.resize(20, 3);
  const json cut = of_ids(ids, {{"truncate_prompt_tokens", 3}});
  EXPECT_EQ(cut["data"], of_ids({2, 4, 5}, {})["data"]);
  EXPECT_EQ(cut["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(of_ids(longer, {})["data"], of_ids(ids, {})["data"]);
  fs::remove(folder + "/modules.json");
  const RunningServe unlisted(folder, Path("unlisted"));
  EXPECT_EQ(Answer(unlisted, "/v1/embeddings", {{"input", longer}}, 400)["error"]["message"],
            "input 0: has 20 tokens; the model has 12 positions");
  EXPECT_EQ(Answer(unlisted, "/v1/embeddings", {{"input", longer}, {"truncate_prompt_tokens", 12}},
                   200)["usage"]["total_tokens"],
            12);
  EXPECT_EQ(Answer(server, "/v1/embeddings", {{"input", "a"}, {"prompt_name", "x"}},
                   400)["error"]["message"],
            "prompt_name: the model has no prompt 'x'; it has query");
  EXPECT_EQ(
      Answer(server, "/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}, 400)["error"]["message"],
      "model: the model is no reranker: that is a classifier of sequences with one label");
}

TEST_F(TextVectorsTest, DocumentsByTheirRelevance) {
  const std::string folder = Saved("reranker", "BertForSequenceClassification");
  const std::vector<std::string> documents = {"red", "green and blue", "blue or red or green", ""};
  std::string text;
  for (const std::string& document : documents) text += document + "\n";
  const Arguments command = {"rerank",       folder,    "--query",
                             "red and blue", "--input", Write("documents.txt", text)};
  std::istringstream lines(Output(command));
  json results = json::array();
  for (std::string line; std::getline(lines, line);) results.push_back(json::parse(line));
  ASSERT_EQ(results.size(), documents.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const double score = results[i]["relevance_score"];
    EXPECT_GT(score, 0);
    EXPECT_LT(score, i > 0 ? results[i - 1]["relevance_score"].get<double>() : 1);
    EXPECT_EQ(results[i]["document"]["text"], documents[results[i]["index"]]);
  }
  Arguments best = command;
  best.insert(best.end(), {"--top-n", "1"});
  EXPECT_EQ(json::parse(Output(best)), results[0]);

  const RunningServe server(folder, Path("log"));
  const json body = {{"query", "red and blue"},
                     {"documents", {documents[0], {{"text", documents[1]}}, documents[2], ""}}};
  const json answer = Answer(server, "/v1/rerank", body, 200);
  EXPECT_EQ(answer["results"], results);
  EXPECT_GT(answer["usage"]["total_tokens"], 16);
  json less = body;
  less.update({{"top_n", 2}, {"return_documents", false}});
  const json two = Answer(server, "/v1/rerank", less, 200);
  ASSERT_EQ(two["results"].size(), 2u);
  EXPECT_EQ(two["results"][0]["index"], results[0]["index"]);
  EXPECT_FALSE(two["results"][0].contains("document"));
  for (const auto& [bad, message] :
       {std::pair<json, std::string>({{"documents", {"a"}}}, "query: is missing"),
        {{{"query", "a"}}, "documents: must be a list of texts"},
        {{{"query", "a"}, {"documents", {7}}},
         "document 0: must be a text, or an object with a text as 'text'"},
        {{{"query", "a"}, {"documents", {"b"}}, {"top_n", 0}}, "top_n"},
        {{{"query", "a"}, {"documents", {"b"}}, {"size", 2}}, "size"}}) {
    const json refused = Answer(server, "/v1/rerank", bad, 400);
    EXPECT_NE(refused["error"]["message"].get<std::string>().find(message), std::string::npos)
        << refused;
  }
}

TEST_F(TextVectorsTest, WhatCannotBeIsSaidInALine) {
  const std::string folder = SentenceTransformer();
  const std::string texts = Write("texts.txt", "red\n");
  const auto embed = [&](const std::string& model, const Arguments& more) {
    Arguments arguments = {"embed", model, "--input", texts};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const std::string out = Path("v.npy");
  ExpectError(embed(folder, {"--output", Path("v.txt")}), 2, "must end in .npy or .jsonl");
  ExpectError(embed(folder, {"--output", out, "--prompt-name", "x"}), 2,
              "the model has no prompt 'x'; it has query");
  ExpectError(embed(folder, {"--output", out, "--prompt", "a", "--prompt-name", "query"}), 2,
              "--prompt or --prompt-name");
  ExpectError(embed(folder, {"--output", out, "--dimensions", "17"}), 2, "have 16 numbers, not 17");
  ExpectError(embed(folder, {"--output", texts + ".npy", "--input", Path("none")}), 2, "none");
  const std::string plain = Saved("plain", "BertModel");
  const std::string longer =
      Write("long.txt", "red\nred and red and red and red and red and red\n");
  ExpectError({"embed", plain, "--input", longer, "--output", out}, 2,
              longer + ":2: has 13 tokens; the model has 12 positions");
  EXPECT_FALSE(fs::exists(out));
  Output({"embed", plain, "--input", longer, "--output", out, "--max-tokens", "12"});
  ExpectError({"rerank", plain, "--query", "red", "--input", texts}, 2,
              plain + ": the model is no reranker");
  const std::string scoring = Saved("scoring", "BertForSequenceClassification");
  Write("scoring/modules.json",
        R"([{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}])");
  Write("scoring/sentence_bert_config.json", R"({"transformer_task": "sequence-classification"})");
  ExpectError({"embed", scoring, "--input", texts, "--output", Path("w.npy")}, 2,
              scoring + ": the model scores documents");
}

}  // namespace
}  // namespace tessera
