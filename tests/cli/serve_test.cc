// SPDX-License-Identifier: Apache-2.0
// `tessera serve` as its clients see it: the texts and log-probabilities of the other commands,
// whoever else is asking; refusals; clients that leave; the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "autograd/autograd.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/token_choice.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/cli/running_serve.h"

namespace tessera {
namespace {

using net::HttpClient;
using net::HttpRequest;
using net::HttpResponse;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr char kTokenizer[] = "data/chat/testdata/tokenizer";

const json kGpt = {
    {"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 512},      {"n_embd", 16},
    {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.5}};
const json kLlama = {{"model_type", "llama"},    {"vocab_size", 600},
                     {"hidden_size", 32},        {"intermediate_size", 48},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
                     {"initializer_range", 0.4}, {"tie_word_embeddings", true}};
const json kT5 = {{"model_type", "t5"},
                  {"vocab_size", 257},
                  {"d_model", 16},
                  {"d_kv", 8},
                  {"d_ff", 32},
                  {"num_layers", 2},
                  {"num_heads", 2},
                  {"initializer_factor", 4.0},
                  {"eos_token_id", 256},
                  {"pad_token_id", 0},
                  {"decoder_start_token_id", 0}};

class Server : public RunningServe {
 public:
  using RunningServe::RunningServe;
  HttpClient Client() const {
    auto client = HttpClient::Open(url());
    EXPECT_TRUE(client.ok()) << Message(client.status());
    return *std::move(client);
  }
};

HttpResponse Send(HttpClient& client, const HttpRequest& request) {
  auto response = client.Send(request);
  EXPECT_TRUE(response.ok()) << Message(response.status());
  return response.ok() ? *std::move(response) : HttpResponse{.status = 0};
}

json Get(HttpClient& client, const std::string& path) {
  const HttpResponse response = Send(client, {.path = path});
  EXPECT_EQ(response.status, 200) << path << ": " << response.body;
  return json::parse(response.body, nullptr, false);
}

json Post(HttpClient& client, const std::string& path, const json& body) {
  const HttpResponse response = Send(client, {.method = "POST", .path = path, .body = body.dump()});
  EXPECT_EQ(response.status, 200) << path << " " << body << ": " << response.body;
  return json::parse(response.body, nullptr, false);
}

// The events of a stream, [DONE] left out, which must be there.
std::vector<json> Stream(HttpClient& client, const std::string& path, json body) {
  body["stream"] = true;
  std::string text;
  const auto response = client.Stream({.method = "POST", .path = path, .body = body.dump()},
                                      [&](std::string_view piece) {
                                        text += piece;
                                        return true;
                                      });
  EXPECT_TRUE(response.ok() && response->status == 200) << body;
  std::vector<json> events;
  const std::string kBegin = "data: ", kDone = kBegin + "[DONE]\n\n";
  EXPECT_TRUE(text.ends_with(kDone)) << text;
  for (size_t begin = 0; begin + kDone.size() < text.size();) {
    const size_t end = text.find("\n\n", begin);
    EXPECT_EQ(text.substr(begin, kBegin.size()), kBegin);
    events.push_back(json::parse(text.substr(begin + kBegin.size(), end - begin - kBegin.size())));
    begin = end + 2;
  }
  return events;
}

std::string JoinedText(const std::vector<json>& events) {
  std::string text;
  for (const json& event : events) text += event["choices"][0]["text"].get<std::string>();
  return text;
}

class ServeTest : public CliRuns {
 protected:
  static void SetUpTestSuite() {
    CliRuns::SetUpTestSuite();
    root_of_models_ = new std::string(testing::TempDir() + "/serve_models");
    fs::remove_all(*root_of_models_);
    const data::ByteTokenizer bytes;
    const auto chats = data::LoadTokenizer(kTokenizer);
    ASSERT_TRUE(chats.ok()) << Message(chats.status());
    for (const auto& [name, config, tokenizer] :
         {std::tuple<const char*, json, const data::Tokenizer*>{"gpt", kGpt, &bytes},
          {"llama", kLlama, chats->get()},
          {"t5", kT5, &bytes}}) {
      const auto model = models::BuildModel(config, {.seed = 3});
      ASSERT_TRUE(model.ok()) << Message(model.status());
      ASSERT_TRUE(models::SaveModel(**model, Model(name), tokenizer).ok());
    }
  }
  static std::string Model(const std::string& name) { return *root_of_models_ + "/" + name; }

  // What `tessera generate` writes behind the prompt.
  std::string Generated(const std::string& model, const std::string& prompt,
                        const Arguments& more) const {
    Arguments arguments = {"generate", "--model", Model(model), "--prompt", prompt};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string text = Output(arguments);
    const size_t skipped = model == "t5" ? 0 : prompt.size();
    return text.substr(skipped, text.size() - skipped - 1);
  }

  inline static std::string* root_of_models_ = nullptr;
};

TEST_F(ServeTest, TextsAreThoseOfGenerate) {
  const std::vector<std::pair<json, Arguments>> kinds = {
      {{{"temperature", 0}, {"max_tokens", 24}}, {"--temperature", "0", "--max-new-tokens", "24"}},
      {{{"temperature", 0.8}, {"top_p", 0.9}, {"seed", 7}, {"max_tokens", 30}},
       {"--temperature", "0.8", "--top-p", "0.9", "--seed", "7", "--max-new-tokens", "30"}},
      {{{"temperature", 1.5},
        {"top_k", 20},
        {"frequency_penalty", 0.5},
        {"presence_penalty", 0.25}},
       {"--temperature", "1.5", "--top-k", "20", "--frequency-penalty", "0.5", "--presence-penalty",
        "0.25"}},
  };
  for (const std::string model : {"gpt", "llama", "t5"}) {
    std::vector<std::pair<json, std::string>> cases;
    for (const std::string prompt : {"red", "a longer text, of which more is to be read"}) {
      for (const auto& [fields, flags] : kinds) {
        json body = fields;
        body["prompt"] = prompt;
        cases.emplace_back(body, Generated(model, prompt, flags));
      }
    }
    for (const std::string slots : {"1", "3"}) {
      const Server server(Model(model), Path(model + slots), {"--slots", slots});
      // All at once, some of them streamed, and once more: then beginnings are there already.
      std::vector<std::thread> threads;
      for (size_t i = 0; i < 3 * cases.size(); ++i) {
        threads.emplace_back([&, i] {
          const auto& [body, expected] = cases[i % cases.size()];
          HttpClient client = server.Client();
          const std::string text = i % 2 == 0
                                       ? Post(client, "/v1/completions", body)["choices"][0]["text"]
                                       : json(JoinedText(Stream(client, "/v1/completions", body)));
          EXPECT_EQ(text, expected) << model << " " << body;
        });
      }
      for (std::thread& thread : threads) thread.join();
      HttpClient client = server.Client();
      const json load = Get(client, "/load");
      EXPECT_EQ(load["running"].size(), 0u);
      EXPECT_EQ(load["waiting"], 0);
      EXPECT_EQ(load["tokens_taken"] > 0, model != "t5") << load;
    }
  }
}

TEST_F(ServeTest, LogProbabilitiesAreThoseOfAForwardPass) {
  const std::vector<int64_t> ids = {40, 41, 42, 50, 60, 3, 255, 7, 9, 100};
  const auto model = models::LoadModel(Model("gpt"), {});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const NoGrad no_grad;
  const Bundle out = (*model)->Run(
      {{keys::kInputIds, Tensor::FromVector<int64_t>(ids, {1, std::ssize(ids)})}}, {});
  const std::vector<float> logits = out.at(keys::kLogits).ToVector<float>();
  const size_t vocabulary = logits.size() / ids.size();

  const Server server(Model("gpt"), Path("log"), {"--slots", "2"});
  HttpClient client = server.Client();
  const json body = {{"prompt", {ids, ids, {1, 2, 3}, ids}},
                     {"echo", true},
                     {"logprobs", 2},
                     {"max_tokens", 1},
                     {"temperature", 0}};
  for (const int tokens : {0, 1}) {
    json asked = body;
    asked["max_tokens"] = tokens;
    const json answer = Post(client, "/v1/completions", asked);
    ASSERT_EQ(answer["choices"].size(), 4u);
    for (const int choice : {0, 1, 3}) {
      const json& said = answer["choices"][choice]["logprobs"];
      ASSERT_EQ(said["token_logprobs"].size(), ids.size() + tokens);
      EXPECT_TRUE(said["token_logprobs"][0].is_null());
      for (size_t t = 1; t < ids.size(); ++t) {
        std::vector<double> row(logits.begin() + (t - 1) * vocabulary,
                                logits.begin() + t * vocabulary);
        models::LogSoftmaxInPlace(row);
        EXPECT_EQ(said["token_logprobs"][t].get<double>(), row[ids[t]]) << t;
        double most = -INFINITY;
        for (const auto& [token, log_p] : said["top_logprobs"][t].items()) {
          most = std::max(most, log_p.get<double>());
        }
        EXPECT_EQ(most, *std::max_element(row.begin(), row.end())) << t;
      }
    }
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 33);
  }
}

TEST_F(ServeTest, OffsetsAreCharactersOfTheText) {
  const Server server(Model("gpt"), Path("log"));
  HttpClient client = server.Client();
  const std::string end = "<|endoftext|>";
  const json body = {{"logprobs", 0}, {"max_tokens", 3}, {"logit_bias", {{"66", 100}}}};
  struct Case {
    json prompt;
    bool echo;
    std::string text;
    std::vector<int> offsets;
  };
  for (const Case& c : std::vector<Case>{
           // Two bytes are one character.
           {"\u00e9 a", true, "\u00e9 aBBB", {0, 0, 1, 2, 3, 4, 5}},
           {"\u00e9 a", false, "BBB", {0, 1, 2}},
           // Special tokens where the echo shows them; half a character is one in the text.
           {{256, 'a', 256, 'b'}, true, end + "a" + end + "bBBB", {0, 13, 14, 27, 28, 29, 30}},
           {{'a', 0xc3, 'b'}, true, "a\uFFFDbBBB", {0, 1, 2, 3, 4, 5}},
           {{256, 'a'}, false, "BBB", {0, 1, 2}}}) {
    json asked = body;
    asked["prompt"] = c.prompt;
    asked["echo"] = c.echo;
    const json choice = Post(client, "/v1/completions", asked)["choices"][0];
    EXPECT_EQ(choice["text"], c.text);
    EXPECT_EQ(choice["logprobs"]["text_offset"], json(c.offsets)) << choice;
    json streamed = json::array();
    for (const json& event : Stream(client, "/v1/completions", asked)) {
      const json more = event["choices"][0]["logprobs"]["text_offset"];
      streamed.insert(streamed.end(), more.begin(), more.end());
    }
    EXPECT_EQ(streamed, json(c.offsets));
  }
  // New tokens that are parts of characters: the halves of one, and one that has no second half.
  json halves = body;
  halves["prompt"] = "a";
  halves["logit_bias"] = {{std::to_string(0xc3), 100}};
  const json choice = Post(client, "/v1/completions", halves)["choices"][0];
  EXPECT_EQ(choice["text"], "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(choice["logprobs"]["text_offset"], (json{0, 0, 1}));
}

// What a folder asks for fits every prompt; what a request asks for is refused where it does not.
TEST_F(ServeTest, TheFoldersLengthIsCutToTheRoom) {
  const std::string folder = Path("long");
  std::filesystem::copy(Model("gpt"), folder);
  std::ofstream(folder + "/generation_config.json") << R"({"max_new_tokens": 510})";
  const Server server(folder, Path("log"));
  HttpClient client = server.Client();
  const json asked = {{"prompt", {std::string(500, 'a'), std::string(505, 'a'), "a"}},
                      {"n", 2},
                      {"temperature", 0},
                      {"logit_bias", {{"256", -100}}}};
  const json answer = Post(client, "/v1/completions", asked);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2 * (12 + 7 + 510));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  json refused = asked;
  refused["max_tokens"] = 510;
  const HttpResponse response =
      Send(client, {.method = "POST", .path = "/v1/completions", .body = refused.dump()});
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("with 510 new ones it exceeds"), std::string::npos) << response.body;
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "context_length_exceeded");
  // There is no room at all.
  refused.erase("max_tokens");
  refused["prompt"] = std::string(512, 'a');
  const HttpResponse full =
      Send(client, {.method = "POST", .path = "/v1/completions", .body = refused.dump()});
  EXPECT_EQ(full.status, 400);
  EXPECT_NE(full.body.find("has 512 tokens; the model has 512 positions"), std::string::npos)
      << full.body;
  EXPECT_EQ(json::parse(full.body)["error"]["code"], "context_length_exceeded");
}

TEST_F(ServeTest, SeveralChoicesEchoAndStop) {
  const Server server(Model("gpt"), Path("log"));
  HttpClient client = server.Client();
  const json sampled = {{"prompt", {"one", "two"}}, {"n", 2},    {"temperature", 1},
                        {"max_tokens", 12},         {"seed", 5}, {"echo", true}};
  const json answer = Post(client, "/v1/completions", sampled);
  ASSERT_EQ(answer["choices"].size(), 4u);
  EXPECT_EQ(answer["object"], "text_completion");
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["finish_reason"], "length");
    EXPECT_EQ(answer["choices"][i]["text"].get<std::string>().substr(0, 3), i < 2 ? "one" : "two");
  }
  EXPECT_NE(answer["choices"][0]["text"], answer["choices"][1]["text"]);
  EXPECT_EQ(answer["usage"],
            (json{{"prompt_tokens", 6}, {"completion_tokens", 48}, {"total_tokens", 54}}));
  EXPECT_EQ(Post(client, "/v1/completions", sampled)["choices"], answer["choices"]);
  // The same count where nothing is written.
  json echo = sampled;
  echo["max_tokens"] = 0;
  EXPECT_EQ(Post(client, "/v1/completions", echo)["usage"],
            (json{{"prompt_tokens", 6}, {"completion_tokens", 0}, {"total_tokens", 6}}));

  // What stops a text is not in it.
  const std::string whole = Post(client, "/v1/completions",
                                 {{"prompt", "red"}, {"max_tokens", 20}})["choices"][0]["text"];
  const auto letter = std::find_if(whole.begin() + 1, whole.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  ASSERT_NE(letter, whole.end());
  const std::string stop(1, *letter);
  const json stopped =
      Post(client, "/v1/completions", {{"prompt", "red"}, {"max_tokens", 20}, {"stop", stop}});
  EXPECT_EQ(stopped["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  // The last event of a stream says why it ends, and what it took where that is asked for.
  const std::vector<json> events =
      Stream(client, "/v1/completions",
             {{"prompt", "red"},
              {"max_tokens", 4},
              {"suffix", ""},
              {"stream_options", {{"include_usage", true}, {"include_obfuscation", false}}}});
  EXPECT_EQ(events.back()["choices"], json::array());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST_F(ServeTest, Conversations) {
  const Server server(Model("llama"), Path("log"));
  HttpClient client = server.Client();
  const json messages = {{{"role", "user"}, {"content", "red"}}};
  const std::string expected =
      Output({"generate", "--model", Model("llama"), "--chat", "--messages",
              Write("messages.json", messages.dump()), "--max-new-tokens", "20"});
  const json asked = {{"messages", messages}, {"max_tokens", 20}, {"model", "served"}};
  const json answer = Post(client, "/v1/chat/completions", asked);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"].get<std::string>() + "\n", expected);
  std::string streamed;
  const std::vector<json> events = Stream(client, "/v1/chat/completions", asked);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const json& event : events) {
    streamed += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed + "\n", expected);
  json parts = asked;
  parts["messages"][0]["content"] = {{{"type", "text"}, {"text", "red"}}};
  parts["logprobs"] = true;
  parts["top_logprobs"] = 3;
  const json scored = Post(client, "/v1/chat/completions", parts);
  EXPECT_EQ(scored["choices"][0]["message"], answer["choices"][0]["message"]);
  const json& first = scored["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["top_logprobs"].size(), 3u);
  EXPECT_EQ(first["logprob"], first["top_logprobs"][0]["logprob"]);

  // Fields that ask for what is done anyhow, and null of any name.
  json usual = asked;
  usual.update({{"service_tier", "auto"},
                {"prompt_cache_key", "red"},
                {"modalities", json::array({"text"})},
                {"function_call", "none"},
                {"reasoning_effort", nullptr},
                {"guided_json", nullptr},
                {"top_logprobs", 0},
                {"length_penalty", 1},
                {"add_generation_prompt", true},
                {"skip_special_tokens", true},
                {"ignore_eos", false},
                {"stop_token_ids", json::array()}});
  EXPECT_EQ(Post(client, "/v1/chat/completions", usual)["choices"], answer["choices"]);

  // An answer that says nothing, as clients write it.
  json silent = asked;
  silent["messages"] = {{{"role", "user"}, {"content", "red"}},
                        {{"role", "assistant"}, {"content", ""}},
                        {{"role", "user"}, {"content", "blue"}}};
  const json empty = Post(client, "/v1/chat/completions", silent);
  silent["messages"][1]["content"] = nullptr;
  const json null = Post(client, "/v1/chat/completions", silent);
  EXPECT_EQ(null["usage"], empty["usage"]);
  EXPECT_EQ(null["choices"], empty["choices"]);

  // ChatGLM's own.
  const json glm =
      Post(client, "/",
           {{"prompt", "red"}, {"history", json::array()}, {"max_length", 40}, {"temperature", 0}});
  EXPECT_EQ(glm["status"], 200);
  EXPECT_EQ(glm["history"], json::array({json::array({"red", glm["response"]})}));
  EXPECT_EQ(glm["time"].get<std::string>().size(), 19u);
  EXPECT_TRUE(std::string(glm["response"]).starts_with(expected.substr(0, 4)));
}

TEST_F(ServeTest, EmbeddingsAndTokens) {
  const Server server(Model("llama"), Path("log"));
  HttpClient client = server.Client();
  const json answer = Post(client, "/v1/embeddings", {{"input", {"red", "green and blue"}}});
  ASSERT_EQ(answer["data"].size(), 2u);
  for (const json& one : answer["data"]) {
    double squares = 0;
    for (const double x : one["embedding"]) squares += x * x;
    EXPECT_NEAR(squares, 1, 1e-5);
    EXPECT_EQ(one["embedding"].size(), 32u);
  }
  const json many =
      Post(client, "/v1/embeddings", {{"input", json(std::vector<std::string>(500, "red"))}});
  ASSERT_EQ(many["data"].size(), 500u);
  EXPECT_EQ(many["data"][499]["embedding"], answer["data"][0]["embedding"]);
  const json alone = Post(client, "/v1/embeddings", {{"input", "green and blue"}});
  EXPECT_EQ(alone["data"][0]["embedding"], answer["data"][1]["embedding"]);
  const json base64 =
      Post(client, "/v1/embeddings", {{"input", "red"}, {"encoding_format", "base64"}});
  EXPECT_EQ(base64["data"][0]["embedding"].get<std::string>().size(), (32 * 4 + 2) / 3 * 4u);

  const json tokens = Post(client, "/tokenize", {{"prompt", "red and green"}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(Post(client, "/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], "red and green");
  EXPECT_EQ(Post(client, "/v1/embeddings", {{"input", tokens["tokens"]}})["data"].size(), 1u);
  EXPECT_FALSE(Get(client, "/tokenizer_info")["chat_template"].get<std::string>().empty());

  EXPECT_EQ(Get(client, "/v1/models")["data"][0]["id"], "served");
  EXPECT_EQ(Get(client, "/health")["status"], "ok");
  const HttpResponse metrics = Send(client, {.path = "/metrics"});
  EXPECT_NE(metrics.body.find("\ntessera_answers_total{status=\"200\"} "), std::string::npos);
  const HttpResponse page = Send(client, {.path = "/"});
  EXPECT_TRUE(page.content_type.starts_with("text/html"));
  EXPECT_NE(page.Find("content-security-policy"), nullptr);
}

TEST_F(ServeTest, RefusesByName) {
  const Server server(Model("gpt"), Path("log"));
  HttpClient client = server.Client();
  struct Refusal {
    std::string path, body;
    int status;
    std::string param, message;
  };
  const std::string kPath = "/v1/completions";
  for (const Refusal& refusal : std::vector<Refusal>{
           {kPath, "{", 400, "", "the body"},
           {kPath, "[]", 400, "", "the body must be a JSON object"},
           {kPath, std::string(100, '[') + std::string(100, ']'), 400, "", "the body"},
           {kPath, "{\"prompt\": \"\xff\"}", 400, "", "the body"},
           {kPath, R"({})", 400, "prompt", "prompt: is missing"},
           {kPath, R"({"prompt": 3})", 400, "prompt", "must be texts"},
           {kPath, R"({"prompt": [257]})", 400, "prompt", "no id of the vocabulary of 257"},
           {kPath, R"({"prompt": [[1], [-1]]})", 400, "prompt", "number 1: token 0, -1"},
           {kPath, R"({"prompt": [1, 2.5]})", 400, "prompt", "token 1, 2.5"},
           {kPath, R"({"prompt": "a", "temperature": -1})", 400, "temperature", "at least 0"},
           {kPath, R"({"prompt": "a", "temperature": "hot"})", 400, "temperature", "a number"},
           {kPath, R"({"prompt": "a", "max_tokens": 0})", 400, "max_tokens", "echo"},
           {kPath, R"({"prompt": "a", "max_tokens": 600})", 400, "", "exceeds the model's 512"},
           {kPath, R"({"prompt": "a", "max_tokns": 6})", 400, "max_tokns", "did you mean"},
           {kPath, R"({"prompt": "a", "n": 0})", 400, "n", "at least 1"},
           {kPath, R"({"prompt": "a", "best_of": 3})", 400, "best_of", "as `n` is"},
           {kPath, R"({"prompt": "a", "stream_options": 3})", 400, "stream_options", "an object"},
           {kPath, R"({"prompt": "a", "n": 128, "best_of": 128, "max_tokens": 600})", 400, "",
            "exceeds the model's 512"},
           {"/v1/embeddings", R"({"input": []})", 400, "input", "input: must not be empty"},
           {kPath, R"({"prompt": "a", "suffix": "b"})", 400, "suffix", "at their end"},
           {kPath, R"({"prompt": "a", "skip_special_tokens": false})", 400, "skip_special_tokens",
            "left out"},
           {kPath, R"({"prompt": "a", "ignore_eos": true})", 400, "ignore_eos", "`min_tokens`"},
           {kPath, R"({"prompt": "a", "logit_bias": {"300": 1}})", 400, "logit_bias", "'300'"},
           {kPath, R"({"prompt": "a", "model": "other"})", 404, "model", "'other' does not exist"},
           {"/v1/chat/completions", R"({"messages": []})", 400, "", "no chat template"},
           {"/v1/embeddings", R"({"input": [""]})", 400, "input", "must not be empty"},
           {"/v1/embeddings", R"({"input": "a", "dimensions": 300})", 400, "dimensions", "16"},
           {"/detokenize", R"({"tokens": [9999]})", 400, "tokens", "9999"},
           {"/completion", "{}", 404, "", "did you mean '/v1/completions'?"},
           {"/v1/completions", R"({"prompt": "a", "repeat_penalty": 1.1})", 400, "repeat_penalty",
            "use 'repetition_penalty'"},
           {"/nowhere", "{}", 404, "", "there is no /nowhere"}}) {
    const HttpResponse response =
        Send(client, {.method = "POST", .path = refusal.path, .body = refusal.body});
    EXPECT_EQ(response.status, refusal.status) << refusal.body << response.body;
    const json error = json::parse(response.body)["error"];
    EXPECT_NE(error["message"].get<std::string>().find(refusal.message), std::string::npos)
        << error;
    EXPECT_EQ(error["param"], refusal.param.empty() ? json() : json(refusal.param)) << error;
  }
  EXPECT_EQ(Send(client, {.method = "DELETE", .path = "/v1/models"}).status, 405);
  EXPECT_EQ(Send(client, {.path = kPath}).status, 405);
  const std::string long_prompt = json{{"prompt", std::string(100'000, 'a')}}.dump();
  EXPECT_EQ(Send(client, {.method = "POST", .path = kPath, .body = long_prompt}).status, 400);
  // A page from elsewhere.
  EXPECT_EQ(Send(client, {.path = "/v1/models", .headers = {{"Host", "evil.example"}}}).status,
            403);
  EXPECT_EQ(
      Send(client, {.path = "/v1/models", .headers = {{"Origin", "http://evil.example"}}}).status,
      403);
  for (const char* host : {"LOCALHOST", "LocalHost:80", "localhost.", "127.0.0.1", "[::1]:8"}) {
    EXPECT_EQ(Send(client, {.path = "/v1/models", .headers = {{"Host", host}}}).status, 200)
        << host;
  }
  for (const char* host : {"localhost.evil.example", "xlocalhost", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(Send(client, {.path = "/v1/models", .headers = {{"Host", host}}}).status, 403)
        << host;
  }
  EXPECT_EQ(Get(client, "/health")["status"], "ok");
}

// What would be multiplied is counted first, and what is long holds up nobody.
TEST_F(ServeTest, RefusesTooMuchAtOnce) {
  const Server server(Model("gpt"), Path("log"), {"--slots", "2", "--max-waiting", "30"});
  HttpClient client = server.Client();
  const auto refusal = [&](const std::string& path, const std::string& body) {
    const auto begin = std::chrono::steady_clock::now();
    const HttpResponse response = Send(client, {.method = "POST", .path = path, .body = body});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << path;
    EXPECT_EQ(response.status, 400) << response.body.substr(0, 200);
    return json::parse(response.body)["error"]["message"].get<std::string>();
  };
  const auto repeated = [](size_t times, const std::string& text) {
    std::string all;
    for (size_t i = 0; i < times; ++i) all += (i == 0 ? "" : ",") + text;
    return all;
  };
  const std::string kPath = "/v1/completions";
  const std::string stops = repeated(16, "\"" + std::string(100'000, 'x') + "\"");
  const std::string kTexts = "the request has 262144 texts; the server takes at most 32 at once";
  EXPECT_EQ(refusal(kPath, R"({"n":128,"stop":[)" + stops + R"(],"prompt":[)" +
                               repeated(2048, "\"a\"") + "]}"),
            "prompt: " + kTexts);
  EXPECT_EQ(refusal(kPath, R"({"n":128,"echo":true,"max_tokens":0,"prompt":[)" +
                               repeated(2048, "\"a\"") + "]}"),
            "prompt: " + kTexts);
  EXPECT_NE(refusal(kPath, R"({"n":33,"prompt":"a"})").find("has 33 texts"), std::string::npos);
  EXPECT_NE(
      refusal(kPath, R"({"prompt":[)" + repeated(1'900'000, "1") + "]}").find("512 positions"),
      std::string::npos);
  EXPECT_EQ(refusal(kPath, R"({"prompt":[)" + repeated(2'000'000, "1") + "]}"),
            "the body: JSON of more than 2000000 values");
  // 32 texts that share 1.6 MB of stop strings.
  const json answer = Post(client, kPath,
                           {{"n", 32},
                            {"max_tokens", 2},
                            {"prompt", "a"},
                            {"stop", std::vector<std::string>(16, std::string(100'000, 'x'))}});
  EXPECT_EQ(answer["choices"].size(), 32u);
  // Many keys are read in the time of few, each; who asks little does not wait for them.
  std::string keys;
  for (int i = 0; i < 300'000; ++i) keys += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  std::thread long_request([&] {
    HttpClient other = server.Client();
    EXPECT_EQ(Send(other, {.method = "POST", .path = kPath, .body = "{" + keys + "}"}).status, 400);
  });
  EXPECT_NE(refusal(kPath, "{" + keys + "}").find("prompt: is missing"), std::string::npos);
  EXPECT_EQ(Post(client, kPath, {{"prompt", "a"}, {"max_tokens", 1}})["choices"].size(), 1u);
  long_request.join();
}

// Folders may ask for beams, which are of no use to a server.
TEST_F(ServeTest, ModelsThatAskForBeamsAreAskedAnotherWay) {
  const std::string folder = Path("beams");
  std::filesystem::copy(Model("gpt"), folder);
  std::ofstream(folder + "/generation_config.json") << R"({"num_beams": 3, "note": NaN})";
  const Server server(folder, Path("log"));
  HttpClient client = server.Client();
  const HttpResponse refused =
      Send(client, {.method = "POST", .path = "/v1/completions", .body = R"({"prompt":"red"})"});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("asks for 3 beams"), std::string::npos) << refused.body;
  std::string greedy;
  for (const json& field : std::vector<json>{{{"temperature", 0}},
                                             {{"temperature", 1e-310}},
                                             {{"stop", {"zz"}}},
                                             {{"logit_bias", {{"5", 0}}}},
                                             {{"top_k", 1}}}) {
    json body = field;
    body["prompt"] = "red";
    body["max_tokens"] = 9;
    const std::string text = Post(client, "/v1/completions", body)["choices"][0]["text"];
    if (greedy.empty()) greedy = text;
    EXPECT_EQ(text, greedy) << field;
  }
  Post(client, "/v1/completions",
       {{"prompt", "red"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
  Post(client, "/v1/completions",
       {{"prompt", "red"}, {"response_format", {{"type", "json_object"}}}});
}

// What another process writes over the files is nothing to a server.
TEST_F(ServeTest, WeightsAreCopies) {
  const std::string quantised = Path("quantised");
  ASSERT_EQ(Run({"quantize", Model("llama"), quantised, "--type", "q8_0"}).code, 0);
  const Server server(quantised, Path("log"));
  HttpClient client = server.Client();
  const json body = {{"prompt", "red"}, {"max_tokens", 12}, {"temperature", 0}};
  const json before = Post(client, "/v1/completions", body)["choices"];
  std::filesystem::resize_file(quantised + "/model.safetensors", 100);
  EXPECT_EQ(Post(client, "/v1/completions", body)["choices"], before);
}

// What is no server of ours is told so in a line, soon.
TEST_F(ServeTest, GenerateRefusesWhatServersMayNotSay) {
  std::string path, body;
  int status = 200;
  auto fake = net::HttpServer::Listen({});
  ASSERT_TRUE(fake.ok());
  std::thread serving([&] {
    fake->Serve([&](net::HttpExchange exchange) {
      const bool models = exchange.request().path == "/v1/models";
      if (path == exchange.request().path)
        return exchange.Respond({.status = status, .body = body});
      if (models) return exchange.Respond({.body = R"({"data":[{"id":"m"}]})"});
      exchange.Respond({.status = 404, .body = "{}"});
    });
  });
  const auto refused = [&](const Arguments& flags) {
    Arguments all = {"generate", "--server", fake->url()};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = Run(all);
    EXPECT_TRUE(outcome.code == 1 || outcome.code == 2) << outcome.code << body;
    EXPECT_EQ(outcome.err.find("error: " + fake->url() + ": "), 0u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.err.find("exception"), std::string::npos) << outcome.err;
  };
  path = "/v1/models";
  for (const char* text :
       {R"({"data":[]})", R"({"data":null})", "{}", "null", "[]", R"({"data":[1]})", "3", "",
        R"({"data":[{"id":7}]})", R"({"data":{"id":"m"}})", "<html>", R"({"data":[{}]})", "[[[["}) {
    body = text;
    refused({"--prompt", "a"});
    refused({"--prompt", "a", "--model", "m"});
  }
  status = 500;
  for (const char* text : {R"({"error":{"message":7}})", R"({"error":"gone"})", R"({"error":[]})",
                           R"({"error":{}})", "\xFF", R"({"error":{"message":"a\nb"}})"}) {
    body = text;
    refused({"--prompt", "a"});
  }
  status = 200;
  path = "/v1/completions";
  for (const char* text :
       {"", "{}", "null", R"({"choices":[]})", R"({"choices":[1]})", R"({"choices":{}})",
        R"({"choices":[{"token_ids":3}]})", R"({"choices":[{"token_ids":["a"]}]})",
        R"({"choices":[{"text":3},{"text":4}]})", "data: {}\n\n", "data: 1\n\n",
        "data: {\"choices\":[{\"text\":1}]}\n\n", "data: {\"error\":3}\n\n"}) {
    body = text;
    refused({"--prompt", "a"});
    refused({"--ids", "1"});
    refused({"--prompts", Write("two.txt", "a\nb\n")});
  }
  fake->Stop(milliseconds(0));
  serving.join();
}

TEST_F(ServeTest, WantsAKeyWhereItIsTold) {
  const Outcome open = Run({"serve", "--model", Model("gpt"), "--host", "0.0.0.0", "--port", "0"});
  EXPECT_EQ(open.code, 2);
  EXPECT_EQ(open.err,
            "error: --host 0.0.0.0: other machines are served with a key alone (--api-key-file)\n");
  const std::string wide = Write("wide", std::string("\xFF\xFE"
                                                     "a\0",
                                                     4));
  const Outcome refused = Run({"serve", "--model", Model("gpt"), "--api-key-file", wide});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err,
            "error: " + wide + ":1: a key has letters, digits and signs of ASCII alone\n");
  const Server server(
      Model("gpt"), Path("log"),
      {"--api-key-file", Write("keys", "\xEF\xBB\xBF  first\t\r\n\n second key \n")});
  HttpClient client = server.Client();
  const auto status = [&](const std::string& path, const std::string& authorization) {
    HttpRequest request = {.path = path};
    if (!authorization.empty()) request.headers = {{"Authorization", authorization}};
    return Send(client, request).status;
  };
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/v1/models", "Bearer firs"), 401);
  EXPECT_EQ(status("/v1/models", "Bearer first2"), 401);
  EXPECT_EQ(status("/v1/models", "first"), 401);
  EXPECT_EQ(status("/nowhere", ""), 401);
  EXPECT_EQ(status("/v1/models", "Bearer first"), 200);
  EXPECT_EQ(status("/v1/models", "Bearer second key"), 200);
  for (const char* given : {"bearer first", "BEARER first", "Bearer   first "}) {
    EXPECT_EQ(status("/v1/models", given), 200) << given;
  }
  for (const char* given : {"Bearerfirst", "Basic first", "Bearer", "Bearer "}) {
    EXPECT_EQ(status("/v1/models", given), 401) << given;
  }
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(status("/", ""), 200);
}

TEST_F(ServeTest, WhoLeavesFreesTheirPlaceAndTheRestWaitsNoLonger) {
  const Server server(Model("gpt"), Path("log"), {"--slots", "1", "--max-waiting", "2"});
  HttpClient watcher = server.Client();
  const json endless = {{"prompt", "red"}, {"max_tokens", 500}, {"stream", true}};
  const auto running = [&] { return Get(watcher, "/load")["running"].size(); };
  for (int i = 0; i < 10; ++i) {
    HttpClient client = server.Client();
    // Left after its first words.
    const auto left =
        client.Stream({.method = "POST", .path = "/v1/completions", .body = endless.dump()},
                      [](std::string_view) { return false; });
  }
  for (int i = 0; i < 100 && running() > 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(running(), 0u);
  const std::string metrics = Send(watcher, {.path = "/metrics"}).body;
  const std::string kCancelled = "\ntessera_texts_cancelled_total ";
  const size_t at = metrics.find(kCancelled);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::stod(metrics.substr(at + kCancelled.size())), 5);
  // More than may wait: 429, and those that have a place are written.
  const int64_t before = Get(watcher, "/load")["refused"];
  std::atomic<int> refused = 0, written = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      HttpClient client = server.Client();
      json body = endless;
      body["stream"] = false;
      const int status =
          Send(client, {.method = "POST", .path = "/v1/completions", .body = body.dump()}).status;
      EXPECT_TRUE(status == 200 || status == 429) << status;
      ++(status == 200 ? written : refused);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(written, 1);
  EXPECT_EQ(Get(watcher, "/load")["refused"], before + refused);
}

TEST_F(ServeTest, GenerateByAServerPrintsTheSame) {
  const std::string prompts = Write("prompts.txt", "red\ngreen and blue\n\nmore");
  const std::string messages = Write("messages.json", R"([{"role": "user", "content": "red"}])");
  for (const std::string model : {"gpt", "llama", "t5"}) {
    const Server server(Model(model), Path(model));
    std::vector<Arguments> asked = {
        {"--prompt", "a red one", "--max-new-tokens", "20"},
        {"--prompt", "a red one", "--temperature", "1.2", "--seed", "4", "--stop", "e"},
        {"--ids", "5,6,7", "--max-new-tokens", "9"},
        {"--prompts", prompts, "--max-new-tokens", "9", "--temperature", "1", "--top-k", "9"}};
    if (model == "llama")
      asked.push_back({"--chat", "--messages", messages, "--max-new-tokens", "9"});
    for (const Arguments& flags : asked) {
      Arguments here = {"generate", "--model", Model(model)};
      Arguments there = {"generate", "--server", server.url()};
      here.insert(here.end(), flags.begin(), flags.end());
      there.insert(there.end(), flags.begin(), flags.end());
      EXPECT_EQ(Output(there), Output(here)) << model << " " << flags[0];
    }
    if (model == "llama") {  // a conversation, whose answers are sampled by different numbers
      const Surroundings lines = {.stdin_path = Write("lines.txt", "red\nred\n/clear\nmore\n")};
      const Arguments flags = {"--chat", "--system",      "Be brief.", "--max-new-tokens",
                               "9",      "--temperature", "1.5",       "--seed",
                               "3"};
      Arguments here = {"generate", "--model", Model(model)};
      Arguments there = {"generate", "--server", server.url()};
      here.insert(here.end(), flags.begin(), flags.end());
      there.insert(there.end(), flags.begin(), flags.end());
      const Outcome expected = Run(here, lines);
      EXPECT_EQ(expected.code, 0) << expected.err;
      EXPECT_EQ(Run(there, lines).out, expected.out);
      EXPECT_EQ(std::count(expected.out.begin(), expected.out.end(), '\n'), 3) << expected.out;
    }
    const Outcome refused = Run({"generate", "--server", server.url(), "--ids", "999"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(refused.err.find("error: " + server.url() + ": prompt: token 0, 999"), 0u)
        << refused.err;
    EXPECT_EQ(Run({"generate", "--server", server.url(), "--prompt", "a", "--num-beams", "2"}).err,
              "error: " + server.url() + ": num_beams: a server does not search beams\n");
    EXPECT_EQ(Run({"generate", "--server", server.url(), "--prompt", "a", "--threads", "2"}).err,
              "error: --threads does not go with --server\n");
  }
  EXPECT_EQ(Run({"generate", "--server", "http://127.0.0.1:1", "--prompt", "a"}).code, 1);
  EXPECT_EQ(Run({"generate", "--prompt", "a"}).err, "error: MODEL is missing\n");
}

TEST_F(ServeTest, ASignalLetsItFinish) {
  Server server(Model("gpt"), Path("log"), {"--slots", "1"});
  const json body = {{"prompt", "red"}, {"max_tokens", 400}, {"temperature", 0}};
  const std::string expected =
      Generated("gpt", "red", {"--max-new-tokens", "400", "--temperature", "0"});
  std::string text;
  std::thread writing([&] {
    HttpClient client = server.Client();
    text = JoinedText(Stream(client, "/v1/completions", body));
  });
  HttpClient watcher = server.Client();
  for (int i = 0; i < 200 && Get(watcher, "/load")["running"].empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  server.process().Signal(SIGTERM);
  writing.join();
  EXPECT_EQ(text, expected);
  EXPECT_TRUE(server.process().EndsWithin(std::chrono::seconds(20)));
  EXPECT_EQ(server.process().ExitCode(), 0) << server.process().Errors();
  EXPECT_EQ(server.process().Errors(), "");
}

}  // namespace
}  // namespace tessera
