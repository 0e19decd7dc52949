// SPDX-License-Identifier: Apache-2.0
// Every generation setting through every surface: `tessera generate`, a server, the C library and
// generation_config.json take it alike, and refuse what is out of its range by its name.
#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "base/options.h"
#include "base/utf8.h"
#include "models/generation/generate.h"
#include "models/generation/generation_config.h"
#include "models/hub/load_model.h"
#include "net/http/http_client.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera.h"
#include "tests/cli/cli_runs.h"
#include "tests/cli/running_serve.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

using models::GenerationConfig;
using nlohmann::json;
using Ids = std::vector<int64_t>;

// A value in range that is not the default.
json SampleOf(const Option& option) {
  const OptionNotes& notes = option.notes;
  switch (option.kind) {
    case Option::Kind::kBool:
      return !option.default_value().get<bool>();
    case Option::Kind::kInteger:
      return 5;
    case Option::Kind::kNumber:
      return notes.most.value_or(2) <= 1 || notes.below.value_or(2) <= 1 ? 0.4 : 1.5;
    case Option::Kind::kNumbers:
      return json::array({0.5});
    case Option::Kind::kText:
      return "b";
    case Option::Kind::kTexts:
      return json::array({"b"});
    case Option::Kind::kIntegers:
      return json::array({7, 9});
    case Option::Kind::kIntegerLists:
      return json::array({json::array({7, 9}), json::array({98})});
    case Option::Kind::kWeights:
      return json{{"65", 20.0}};
  }
  return json();
}

// Numbers out of range: below it, and above it.
std::vector<json> OutOfRange(const Option& option) {
  const OptionNotes& notes = option.notes;
  const bool whole = option.kind == Option::Kind::kInteger;
  if (!whole && option.kind != Option::Kind::kNumber) return {};
  const auto number = [&](double value) {
    return whole ? json(static_cast<int64_t>(value)) : json(value);
  };
  std::vector<json> values;
  if (notes.least) values.push_back(number(*notes.least - 1));
  if (notes.above) values.push_back(number(*notes.above));
  if (notes.most) values.push_back(number(*notes.most + 1));
  if (notes.below) values.push_back(number(*notes.below));
  return values;
}

std::string FlagOf(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// What a setting needs beside it to mean something.
json Beside(const std::string& key) {
  json asked = {{"max_new_tokens", 6}};
  if (key == "length_penalty" || key == "early_stopping") asked["num_beams"] = 3;
  if (key == "num_return_sequences") asked["do_sample"] = true;
  return asked;
}

class EverySettingTest : public CliRuns {
 protected:
  static const OptionTable& Table() { return GenerationConfig::Table(); }
  static std::string TextOfValue(const std::string& key, const json& value) {
    return Table().Find(key)->ToText(value);
  }

  Outcome Command(const json& asked) const {
    Arguments arguments = {"generate", *model_, "--ids", "97,98,99"};
    for (const auto& [key, value] : asked.items()) {
      arguments.push_back(FlagOf(key) + "=" + TextOfValue(key, value));
    }
    return Run(arguments);
  }

  // TSR_OK, or what was refused; `ids` are those that were written.
  static int Library(const json& asked, Ids* ids, std::string* message) {
    static const auto* const model = new ModelHandle(LoadHandle(*model_));
    static const auto* const context = new ContextHandle(ContextOf(*model));
    tsr_generate_options options = {};
    options.size = sizeof(options);
    for (const auto& [key, value] : asked.items()) {
      const std::string text = TextOfValue(key, value);
      const int code =
          CodeOf(tsr_generate_options_set(&options, key.c_str(), text.c_str()), message);
      if (code == TSR_OK) continue;
      tsr_generate_options_clear(&options);
      return code;
    }
    *ids = GenerateWith(context->get(), {97, 98, 99}, &options).ids;
    tsr_generate_options_clear(&options);
    return TSR_OK;
  }

  static net::HttpResponse Post(const std::string& url, json body) {
    auto client = net::HttpClient::Open(url);
    EXPECT_TRUE(client.ok()) << Message(client.status());
    body["prompt"] = {97, 98, 99};
    auto response =
        client->Send({.method = "POST", .path = "/v1/completions", .body = body.dump()});
    EXPECT_TRUE(response.ok()) << Message(response.status());
    return response.ok() ? *std::move(response) : net::HttpResponse{.status = 0};
  }
};

TEST_F(EverySettingTest, IsTakenAlike) {
  const auto model = models::LoadModel(*model_, {});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const auto defaults = models::ReadGenerationConfig(*model_, (*model)->config());
  ASSERT_TRUE(defaults.ok()) << Message(defaults.status());
  const data::ByteTokenizer tokenizer;
  const RunningServe server(*model_, Path("serve"));
  for (const Option& option : Table().options()) {
    SCOPED_TRACE(option.key);
    json asked = Beside(option.key);
    asked[option.key] = SampleOf(option);
    const auto wanted = models::WithSettings(*defaults, asked);
    ASSERT_TRUE(wanted.ok()) << Message(wanted.status());
    EXPECT_EQ(option.Get(&*wanted), asked[option.key]);
    const NoGrad no_grad;
    const auto expected =
        models::Generate(**model, {{97, 98, 99}}, *wanted, {.tokenizer = &tokenizer});
    ASSERT_TRUE(expected.ok()) << Message(expected.status());
    EXPECT_EQ(std::ssize(*expected), wanted->num_return_sequences);

    const Outcome command = Command(asked);
    std::string lines;
    Ids all;
    for (const models::GenerationResult& result : *expected) {
      lines += "97,98,99";
      for (const int64_t id : result.ids) lines += "," + std::to_string(id);
      lines += "\n";
      all.insert(all.end(), result.ids.begin(), result.ids.end());
    }
    EXPECT_EQ(command.out, lines) << command.err;

    Ids written;
    std::string message;
    EXPECT_EQ(Library(asked, &written, &message), TSR_OK) << message;
    EXPECT_EQ(written, all);

    const net::HttpResponse response = Post(server.url(), asked);
    const json answer = json::parse(response.body, nullptr, false);
    if (wanted->num_beams > 1) {
      EXPECT_EQ(response.status, 400);
      EXPECT_EQ(answer["error"]["message"], "num_beams: a server does not search beams");
    } else {
      ASSERT_EQ(response.status, 200) << response.body;
      ASSERT_EQ(answer["choices"].size(), expected->size());
      for (size_t i = 0; i < expected->size(); ++i) {
        EXPECT_EQ(answer["choices"][i]["text"], ReplaceInvalidUtf8((*expected)[i].text));
      }
    }

    GenerationConfig of_file;
    ASSERT_TRUE(models::ApplyGenerationJson(asked, "generation_config.json", &of_file).ok());
    EXPECT_EQ(option.Get(&of_file), asked[option.key]);
    EXPECT_EQ(models::NotApplied("", of_file), "");
  }
}

// A request for a setting that is not supported is refused. A folder that has one is opened.
TEST_F(EverySettingTest, WhatIsNotSupportedIsRefusedByItsName) {
  const RunningServe server(*model_, Path("serve"));
  json file = json::object();
  std::vector<std::string> keys;
  for (const models::UnsupportedSetting& key : models::UnsupportedSettings()) {
    SCOPED_TRACE(key.key);
    keys.push_back(key.key);
    file[key.key] = 3;
    const Outcome command = Run({"generate", *model_, "--ids", "97", FlagOf(key.key) + "=3"});
    EXPECT_EQ(command.code, 2);
    const std::string refused = "error: " + FlagOf(key.key) + " is refused: " + key.Reason();
    EXPECT_TRUE(command.err.starts_with(refused)) << command.err;
    EXPECT_EQ(std::count(command.err.begin(), command.err.end(), '\n'), 1) << command.err;
    tsr_generate_options options = {};
    options.size = sizeof(options);
    std::string message;
    EXPECT_EQ(CodeOf(tsr_generate_options_set(&options, key.key.c_str(), "3"), &message),
              TSR_INVALID_ARGUMENT);
    EXPECT_EQ(message, "tsr_generate_options: " + key.key + ": " + key.Reason());
    const net::HttpResponse response = Post(server.url(), {{key.key, 3}});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(json::parse(response.body)["error"]["message"], key.key + ": " + key.Reason());
    EXPECT_EQ(Post(server.url(), {{key.key, *key.neutral}, {"max_tokens", 1}}).status, 200);
  }
  const std::string folder = Path("folder");
  fs::copy(*model_, folder);
  std::ofstream(folder + "/generation_config.json") << file;
  const Outcome loaded = Run({"generate", folder, "--ids", "97", "--max-new-tokens", "2"});
  EXPECT_EQ(loaded.code, 0);
  EXPECT_EQ(std::count(loaded.err.begin(), loaded.err.end(), '\n'), 1) << loaded.err;
  for (const std::string& key : keys) {
    EXPECT_NE(loaded.err.find("'" + key + "': 3"), std::string::npos) << loaded.err;
  }
}

TEST_F(EverySettingTest, IsRefusedOutOfItsRange) {
  const RunningServe server(*model_, Path("serve"));
  int refused = 0;
  for (const Option& option : Table().options()) {
    for (const json& value : OutOfRange(option)) {
      SCOPED_TRACE(option.key + " " + value.dump());
      ++refused;
      const json asked = {{option.key, value}};
      const Outcome command = Command(asked);
      EXPECT_EQ(command.code, 2);
      EXPECT_NE(command.err.find(FlagOf(option.key)), std::string::npos) << command.err;

      Ids ids;
      std::string message;
      EXPECT_EQ(Library(asked, &ids, &message), TSR_INVALID_ARGUMENT);
      EXPECT_NE(message.find(option.key), std::string::npos) << message;

      const net::HttpResponse response = Post(server.url(), asked);
      EXPECT_EQ(response.status, 400);
      EXPECT_NE(response.body.find(option.key), std::string::npos) << response.body;

      GenerationConfig of_file;
      const Status file = models::ApplyGenerationJson(asked, "generation_config.json", &of_file);
      EXPECT_NE(Message(file).find("'" + option.key + "'"), std::string::npos) << file;
    }
  }
  EXPECT_GT(refused, 15);
}

}  // namespace
}  // namespace tessera
