// SPDX-License-Identifier: Apache-2.0
// Structured answers of `tessera serve`: texts that fit a schema, and calls of tools.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
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
    EXPECT_EQ(choice["finish_reason"], "stop") << choice;
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
    body["response_format"]["schema"] = {{"const", {{"who", "red"}}}};  // as llama.cpp has it
    message = Post(client, kChat, body)["choices"][0]["message"];
    EXPECT_EQ(ordered_json::parse(message["content"].get<std::string>(), nullptr, false),
              (ordered_json{{"who", "red"}}))
        << message;
  }
  Post(client, kCompletions,
       {{"prompt", "red"}, {"max_tokens", 2}, {"response_format", {{"type", "text"}}}});
  // An integer beyond 64 bits, as the body spells it.
  const std::string digits = "123456789012345678901234567890";
  const HttpResponse large = Send(
      client, {.method = "POST",
               .path = kCompletions,
               .body = R"({"prompt":"red","max_tokens":60,"response_format":{"type":"json_schema",)"
                       R"("json_schema":{"name":"n","schema":{"const":)" +
                       digits + "}}}}"});
  ASSERT_EQ(large.status, 200) << large.body;
  const auto said = ordered_json::parse(large.body);
  EXPECT_NE(said["choices"][0]["text"].get<std::string>().find(digits), std::string::npos) << said;
  EXPECT_EQ(said["choices"][0]["finish_reason"], "stop");
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
  EXPECT_EQ(refusal({{"type", "json_object"}, {"schema", 3}}),
            "response_format.schema: a schema is an object, true or false");
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

// Templates of the families that write calls, each in its form.
const std::pair<const char*, const char*> kForms[] = {
    {"qwen", "<tool_call></tool_call>"},
    {"llama", R"({"name": function name, "parameters": its})"},
    {"mistral", "[TOOL_CALLS]"},
    {"mistral_names", "[TOOL_CALLS]...[ARGS]"}};

const ordered_json kTools = ordered_json::parse(
    R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",)"
    R"( "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"],)"
    R"( "additionalProperties": false, "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}}},)"
    R"( {"type": "function", "function": {"name": "clock"}}])");

// The model's folder with another template.
std::string FolderWithTemplate(const std::string& from, const std::string& folder,
                               const std::string& text) {
  std::filesystem::copy(from, folder);
  std::ofstream(folder + "/chat_template.jinja") << text;
  return folder;
}

TEST_F(ServeJsonTest, ACallThatIsAskedForIsMade) {
  for (const auto& [name, form] : kForms) {
    const std::string folder = FolderWithTemplate(
        Folder(), Path(name),
        std::string("{% if tools %}") + form +
            "{{ tools | tojson }}{% endif %}{% for m in messages %}<|user|>{{ m.content.strip() }}"
            "{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %}"
            "{% endfor %}<|assistant|>");
    const RunningServe server(folder, Path(std::string(name) + ".log"));
    HttpClient client = ClientOf(server);
    ordered_json body = {
        {"messages", {{{"role", "user"}, {"content", "Is it warm?"}}}},
        {"tools", kTools},
        {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}},
        {"parallel_tool_calls", false},
        {"max_tokens", 90}};
    const ordered_json choice = Post(client, kChat, body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
    const ordered_json calls = choice["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1u) << choice;
    EXPECT_EQ(calls[0]["type"], "function");
    EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9u);
    EXPECT_EQ(calls[0]["function"]["name"], "weather");
    const auto arguments =
        ordered_json::parse(calls[0]["function"]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["city"] == "Rome" || arguments["city"] == "Oslo") << arguments;

    // The same in a stream.
    body["stream"] = true;
    const HttpResponse stream =
        Send(client, {.method = "POST", .path = kChat, .body = body.dump()});
    std::string streamed, finish;
    for (size_t at = stream.body.find("data: {"); at != std::string::npos;
         at = stream.body.find("data: {", at + 1)) {
      const auto event =
          ordered_json::parse(stream.body.substr(at + 6, stream.body.find("\n\n", at) - at - 6));
      const ordered_json& delta = event["choices"][0]["delta"];
      EXPECT_TRUE(delta.value("content", "").empty()) << event;
      if (event["choices"][0]["finish_reason"].is_string()) {
        finish = event["choices"][0]["finish_reason"];
      }
      if (!delta.contains("tool_calls")) continue;
      EXPECT_EQ(delta["tool_calls"][0]["index"], 0);
      streamed += delta["tool_calls"][0]["function"]["arguments"];
    }
    EXPECT_EQ(streamed, calls[0]["function"]["arguments"]);
    EXPECT_EQ(finish, "tool_calls");
    body.erase("stream");

    // Its result, with arguments as a text or as an object: the same prompt.
    ordered_json said = choice["message"];
    body["messages"].push_back(said);
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", calls[0]["id"]}, {"content", "20"}});
    body["tool_choice"] = "required";
    const ordered_json second = Post(client, kChat, body);
    EXPECT_EQ(second["choices"][0]["finish_reason"], "tool_calls") << second;
    body["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments;
    body["messages"][1].erase("content");
    const ordered_json again = Post(client, kChat, body);
    EXPECT_EQ(again["usage"], second["usage"]);
    EXPECT_EQ(again["choices"][0]["message"]["tool_calls"][0]["function"],
              second["choices"][0]["message"]["tool_calls"][0]["function"]);
    // Without tools, words.
    body["tool_choice"] = "none";
    EXPECT_FALSE(Post(client, kChat, body)["choices"][0]["message"].contains("tool_calls"));
  }
}

// The folder's tokenizer has more special tokens; the ids of the first one.
int64_t AddSpecialTokens(const std::string& folder, const std::vector<std::string>& texts) {
  const std::string path = folder + "/tokenizer.json";
  std::ifstream file(path);
  ordered_json json = ordered_json::parse(file);
  ordered_json& added = json["added_tokens"];
  const int64_t first = added.back()["id"].get<int64_t>() + 1;
  for (const std::string& text : texts) {
    ordered_json token = added.back();
    token["id"] = token["id"].get<int64_t>() + 1;
    token["content"] = text;
    added.push_back(std::move(token));
  }
  std::ofstream(path) << json;
  return first;
}

TEST_F(ServeJsonTest, MarksOfCallsMayBeSpecialTokens) {
  const std::string folder = FolderWithTemplate(
      Folder(), Path("special"), "{{ messages[0].content }}{# [TOOL_CALLS][ARGS] #}");
  const int64_t begin = AddSpecialTokens(folder, {"[TOOL_CALLS]", "[ARGS]"});
  const RunningServe server(folder, Path("log"));
  HttpClient client = ClientOf(server);
  // The grammar lets the marks be special tokens, and the reader finds [ARGS] among them.
  ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Is it warm?"}}}},
                       {"tools", kTools},
                       {"tool_choice", "required"},
                       {"logprobs", true},
                       {"logit_bias", {{std::to_string(begin + 1), 100}}},
                       {"max_tokens", 90}};
  const ordered_json choice = Post(client, kChat, body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
  EXPECT_NE(choice["logprobs"].dump().find("[ARGS]"), std::string::npos) << choice;
  // A call that is none stays text, with its marks; without tools they are no text.
  body.erase("tool_choice");
  body["logit_bias"] = {{std::to_string(begin), 100}};
  body["max_tokens"] = 2;
  EXPECT_EQ(Post(client, kChat, body)["choices"][0]["message"]["content"],
            "[TOOL_CALLS][TOOL_CALLS]");
  body.erase("tools");
  EXPECT_EQ(Post(client, kChat, body)["choices"][0]["message"]["content"], "");
}

TEST_F(ServeJsonTest, RefusesToolsAndContentsByName) {
  const std::string folder =
      FolderWithTemplate(Folder(), Path("tools"), "<tool_call>{{ messages | tojson }}");
  const RunningServe server(folder, Path("log"));
  HttpClient client = ClientOf(server);
  const auto refusal = [&](const ordered_json& fields, const std::string& param) {
    ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 3}};
    body.update(fields);
    return Refusal(client, kChat, body, param);
  };
  const auto content = [](const ordered_json& content) {
    return ordered_json{{"messages", {{{"role", "user"}, {"content", content}}}}};
  };
  EXPECT_EQ(refusal(content(3), "messages"),
            "messages: 'content' of message 0 must be a text, not 3");
  EXPECT_EQ(refusal(content({{"text", "a"}}), "messages"),
            R"(messages: 'content' of message 0 must be a text, not {"text":"a"})");
  EXPECT_EQ(refusal({{"tool_choice", "required"}}, "tool_choice"), "tool_choice: needs `tools`");
  EXPECT_NE(refusal({{"tool_choice", "always"}}, "tool_choice").find("must be none, auto"),
            std::string::npos);
  const ordered_json other = {{"type", "function"}, {"function", {{"name", "other"}}}};
  EXPECT_EQ(refusal({{"tools", kTools}, {"tool_choice", other}}, "tool_choice"),
            "tool_choice: no tool is called 'other'");
  EXPECT_EQ(refusal({{"tools", {{{"type", "function"}, {"function", {{"name", 3}}}}}}}, "tools"),
            "tools[0].function.name: must be a text");
  ordered_json tools = kTools;
  tools[0]["function"]["parameters"]["properties"]["city"] = {{"type", "town"}};
  const std::string wrong = refusal({{"tools", tools}, {"tool_choice", "required"}}, "tools");
  EXPECT_TRUE(wrong.starts_with("tools[0].function.parameters: 'properties.city")) << wrong;
  EXPECT_NE(refusal({{"chat_template_kwargs", 3}}, "chat_template_kwargs"), "");
  EXPECT_NE(refusal({{"chat_template_kwargs", {{"tools", 3}}}}, "chat_template_kwargs"), "");
}

TEST_F(ServeJsonTest, ReasoningIsApartWhereTheTemplateKnowsIt) {
  const std::string folder = FolderWithTemplate(
      Folder(), Path("reasoning"),
      "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}"
      "<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}");
  const RunningServe server(folder, Path("log"));
  HttpClient client = ClientOf(server);
  ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 8}};
  const ordered_json thought = Post(client, kChat, body)["choices"][0]["message"];
  EXPECT_FALSE(thought.value("reasoning_content", "").empty()) << thought;
  EXPECT_EQ(thought["content"], "") << thought;
  body["chat_template_kwargs"] = {{"enable_thinking", false}};
  const ordered_json said = Post(client, kChat, body)["choices"][0]["message"];
  EXPECT_FALSE(said.contains("reasoning_content")) << said;
  EXPECT_FALSE(said["content"].get<std::string>().empty()) << said;
  // What must fit a schema is an answer, not a thought.
  body.erase("chat_template_kwargs");
  body["max_tokens"] = 60;
  body["response_format"] = JsonSchema(kPerson, true);
  const ordered_json person = Post(client, kChat, body)["choices"][0]["message"];
  EXPECT_TRUE(ordered_json::accept(person["content"].get<std::string>())) << person;
}

TEST_F(ServeJsonTest, OneModelByItsId) {
  const RunningServe server(Folder(), Path("log"), {"--cors-origin", "https://chat.example.com"});
  HttpClient client = ClientOf(server);
  const HttpResponse model = Send(client, {.path = "/v1/models/served"});
  EXPECT_EQ(model.status, 200);
  EXPECT_EQ(ordered_json::parse(model.body)["id"], "served");
  EXPECT_EQ(Send(client, {.path = "/v1/models/ser%76ed"}).status, 200);
  const HttpResponse missing = Send(client, {.path = "/v1/models/other"});
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(ordered_json::parse(missing.body)["error"]["code"], "model_not_found");
}

TEST_F(ServeJsonTest, PagesOfOneOriginMayAsk) {
  const std::string kOrigin = "https://chat.example.com";
  const RunningServe server(Folder(), Path("log"), {"--cors-origin", kOrigin});
  HttpClient client = ClientOf(server);
  const HttpResponse before =
      Send(client, {.method = "OPTIONS",
                    .path = kChat,
                    .headers = {{"Origin", kOrigin}, {"Access-Control-Request-Method", "POST"}}});
  EXPECT_EQ(before.status, 204);
  ASSERT_NE(before.Find("access-control-allow-origin"), nullptr);
  EXPECT_EQ(*before.Find("access-control-allow-origin"), kOrigin);
  EXPECT_NE(before.Find("access-control-allow-methods")->find("POST"), std::string::npos);
  for (const bool streams : {false, true}) {
    const ordered_json body = {{"prompt", "red"}, {"max_tokens", 2}, {"stream", streams}};
    const HttpResponse answer = Send(client, {.method = "POST",
                                              .path = kCompletions,
                                              .headers = {{"Origin", kOrigin}},
                                              .body = body.dump()});
    EXPECT_EQ(answer.status, 200);
    ASSERT_NE(answer.Find("access-control-allow-origin"), nullptr) << streams;
  }
  const HttpResponse other =
      Send(client, {.path = "/v1/models", .headers = {{"Origin", "https://evil.example.com"}}});
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.Find("access-control-allow-origin"), nullptr);
  ExpectError({"serve", "--model", Folder(), "--cors-origin", "example.com/page"}, 2,
              "--cors-origin must be as");
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
