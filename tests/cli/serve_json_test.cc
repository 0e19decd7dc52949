// SPDX-License-Identifier: Apache-2.0
// Structured answers of `tessera serve`: texts that fit a schema, and calls of tools.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "net/http/http_client.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/cli/running_serve.h"

namespace tessera {
namespace {

using net::HttpClient;
using net::HttpRequest;
using net::HttpResponse;
using nlohmann::ordered_json;

constexpr char kTokenizer[] = "data/chat/testdata/tokenizer";
constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

const ordered_json kLlama = {{"model_type", "llama"},    {"vocab_size", 600},
                             {"hidden_size", 32},        {"intermediate_size", 48},
                             {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                             {"num_key_value_heads", 2}, {"max_position_embeddings", 512},
                             {"initializer_range", 0.4}, {"tie_word_embeddings", true}};

const ordered_json kPerson = ordered_json::parse(
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},)"
    R"( "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]})");

ordered_json JsonSchema(const ordered_json& schema, bool strict) {
  return {{"type", "json_schema"},
          {"json_schema", {{"name", "answer"}, {"schema", schema}, {"strict", strict}}}};
}

class ServeJsonTest : public CliRuns {
 protected:
  static void SetUpTestSuite() {
    CliRuns::SetUpTestSuite();
    root_of_models_ = new std::string(testing::TempDir() + "/serve_json_models");
    fs::remove_all(*root_of_models_);
    const auto tokenizer = data::LoadTokenizer(kTokenizer);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    const auto model = models::BuildModel(kLlama, {.seed = 3});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    ASSERT_TRUE(models::SaveModel(**model, Folder(), tokenizer->get()).ok());
  }
  static std::string Folder() { return *root_of_models_ + "/llama"; }

  static HttpClient ClientOf(const RunningServe& server) {
    auto client = HttpClient::Open(server.url());
    EXPECT_TRUE(client.ok()) << Message(client.status());
    return *std::move(client);
  }
  static HttpResponse Send(HttpClient& client, const HttpRequest& request) {
    auto response = client.Send(request);
    EXPECT_TRUE(response.ok()) << Message(response.status());
    return response.ok() ? *std::move(response) : HttpResponse{.status = 0};
  }
  static ordered_json Post(HttpClient& client, const std::string& path, const ordered_json& body) {
    const HttpResponse response =
        Send(client, {.method = "POST", .path = path, .body = body.dump()});
    EXPECT_EQ(response.status, 200) << path << " " << body << ": " << response.body;
    return ordered_json::parse(response.body, nullptr, false);
  }
  // The message of a refusal, which must name `param`.
  static std::string Refusal(HttpClient& client, const std::string& path, const ordered_json& body,
                             const std::string& param) {
    const HttpResponse response =
        Send(client, {.method = "POST", .path = path, .body = body.dump()});
    EXPECT_EQ(response.status, 400) << body << ": " << response.body;
    const ordered_json error = ordered_json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], param) << error;
    return error["message"];
  }

  inline static std::string* root_of_models_ = nullptr;
};

TEST_F(ServeJsonTest, TextsFitTheirFormat) {
  const RunningServe server(Folder(), Path("log"));
  HttpClient client = ClientOf(server);
  for (int seed = 0; seed < 6; ++seed) {
    ordered_json body = {{"prompt", "red"},
                         {"max_tokens", 60},
                         {"seed", seed},
                         {"temperature", 1.5},
                         {"response_format", JsonSchema(kPerson, seed % 2 == 0)}};
    const ordered_json choice = Post(client, kCompletions, body)["choices"][0];
    const auto person = ordered_json::parse(choice["text"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(person.is_object()) << choice;
    EXPECT_TRUE(person["name"].is_string() && person["age"].is_number_integer()) << person;
    EXPECT_LE(person["age"], 150);
    EXPECT_EQ(person.begin().key(), "name");
    if (seed % 2 == 0) {
      EXPECT_EQ(person.size(), 2u) << person;  // strict: no others
    }
    // The same to a conversation, and any object at all.
    body.erase("prompt");
    body["messages"] = {{{"role", "user"}, {"content", "Who?"}}};
    ordered_json message = Post(client, kChat, body)["choices"][0]["message"];
    EXPECT_TRUE(ordered_json::accept(message["content"].get<std::string>())) << message;
    body["response_format"] = {{"type", "json_object"}};
    message = Post(client, kChat, body)["choices"][0]["message"];
    const auto object = ordered_json::parse(message["content"].get<std::string>(), nullptr, false);
    EXPECT_TRUE(object.is_object()) << message;
  }
  Post(client, kCompletions,
       {{"prompt", "red"}, {"max_tokens", 2}, {"response_format", {{"type", "text"}}}});
}

TEST_F(ServeJsonTest, ATextThatIsTooShortIsABeginning) {
  const RunningServe server(Folder(), Path("log"));
  HttpClient client = ClientOf(server);
  const ordered_json choice = Post(client, kCompletions,
                                   {{"prompt", "red"},
                                    {"max_tokens", 3},
                                    {"response_format", JsonSchema(kPerson, true)}})["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  std::string text = choice["text"];
  text.erase(std::remove_if(text.begin(), text.end(), ::isspace), text.end());
  EXPECT_TRUE(std::string(R"({"name":)").starts_with(text.substr(0, 8))) << text;
}

TEST_F(ServeJsonTest, RefusesFormatsByName) {
  const RunningServe server(Folder(), Path("log"));
  HttpClient client = ClientOf(server);
  const auto refusal = [&](const ordered_json& format) {
    return Refusal(client, kCompletions, {{"prompt", "red"}, {"response_format", format}},
                   "response_format");
  };
  EXPECT_EQ(refusal("json"), "response_format: must be an object with a `type`");
  EXPECT_EQ(refusal({{"type", "xml"}}),
            "response_format.type: must be text, json_object or json_schema");
  EXPECT_EQ(refusal({{"type", "json_schema"}}), "response_format.json_schema: is missing");
  EXPECT_EQ(refusal({{"type", "json_schema"}, {"json_schema", {{"name", "a"}}}}),
            "response_format.json_schema.schema: is missing");
  const std::string unsupported = refusal(
      JsonSchema({{"properties", {{"a", {{"type", "array"}, {"uniqueItems", true}}}}}}, true));
  EXPECT_TRUE(unsupported.starts_with("response_format.json_schema.schema: 'properties.a"))
      << unsupported;
  EXPECT_NE(unsupported.find("uniqueItems"), std::string::npos) << unsupported;
  EXPECT_NE(refusal(JsonSchema({{"type", "text"}}, false)).find("'type'"), std::string::npos);
  EXPECT_NE(Refusal(client, kChat,
                    {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                     {"num_beams", 2},
                     {"response_format", JsonSchema(kPerson, true)}},
                    "num_beams"),
            "");
}

TEST_F(ServeJsonTest, GenerateWritesWhatASchemaSays) {
  const std::string schema = Path("person.json");
  std::ofstream(schema) << kPerson;
  const std::string text = Output({"generate", "--model", Folder(), "--prompt", "red",
                                   "--json-schema", schema, "--max-new-tokens", "60"});
  EXPECT_TRUE(ordered_json::accept(text.substr(3))) << text;
  const RunningServe server(Folder(), Path("log"));
  EXPECT_EQ(Output({"generate", "--server", server.url(), "--prompt", "red", "--json-schema",
                    schema, "--max-new-tokens", "60"}),
            text);
  ExpectError({"generate", "--model", Folder(), "--prompt", "red", "--json-schema", schema,
               "--num-beams", "2"},
              2, "--json-schema does not go with --num-beams above 1");
}

}  // namespace
}  // namespace tessera
