// SPDX-License-Identifier: Apache-2.0
// The C interface beside the C++ that it is on: the same bits, and failures that are statuses.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/image/image_processor.h"
#include "gtest/gtest.h"
#include "models/generation/generate.h"
#include "models/generation/generation_config.h"
#include "models/hub/adapter.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"
#include "runtime/tessera.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

std::unique_ptr<models::Model> Reference(const std::string& model_type) {
  auto model = models::LoadModel(SmallModelFolder(model_type), {.require_weights = true});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// What tsr_forward gives for SmallInputs.
std::string ForwardText(tsr_context* context, const std::string& model_type) {
  const NamedTensors in(SmallInputs(model_type));
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  std::string message;
  EXPECT_EQ(
      CodeOf(tsr_forward(context, in.tensors.data(), in.tensors.size(), &out, &count), &message),
      TSR_OK)
      << message;
  const TensorsHandle owner(out);
  return TextOf(out, count);
}

class EveryFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(kSmallModels),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EveryFamily, ForwardHasTheBitsOfTheModel) {
  const ModelHandle model = LoadHandle(SmallModelFolder(GetParam()));
  const ContextHandle context = ContextOf(model);
  const NoGrad no_grad;
  const std::string expected = TextOf(Reference(GetParam())->Run(SmallInputs(GetParam()), {}));
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(ForwardText(context.get(), GetParam()), expected);
  tsr_context_options options = {};
  options.size = sizeof(options);
  options.threads = 3;
  options.memory_limit = 64 << 20;
  EXPECT_EQ(ForwardText(ContextOf(model, &options).get(), GetParam()), expected);
}

TEST_P(EveryFamily, HiddenStatesAreThereWhenAskedFor) {
  const ModelHandle model = LoadHandle(SmallModelFolder(GetParam()));
  const ContextHandle context = ContextOf(model);
  const NamedTensors in(SmallInputs(GetParam()));
  tsr_forward_options options = {};
  options.size = sizeof(options);
  options.all_hidden_states = 1;
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  ASSERT_EQ(CodeOf(tsr_forward_with(context.get(), in.tensors.data(), in.tensors.size(), &options,
                                    &out, &count)),
            TSR_OK);
  const TensorsHandle owner(out);
  EXPECT_NE(TextOf(out, count).find("hidden_states.0 "), std::string::npos);
}

// The file at `path` gives what the folder gives.
void ExpectLoadsFromAnywhere(const std::string& path, const std::string& folder,
                             const std::string& family) {
  const std::string expected = ForwardText(ContextOf(LoadHandle(folder)).get(), family);
  const std::string archive = *ReadFile(path);
  const auto check = [&](const char* what, const auto& load) {
    tsr_model* model = nullptr;
    std::string message;
    EXPECT_EQ(CodeOf(load(&model), &message), TSR_OK) << what << ": " << message;
    const ModelHandle owner(model);
    EXPECT_EQ(ForwardText(ContextOf(owner).get(), family), expected) << what;
  };
  check("path", [&](tsr_model** out) { return tsr_model_load(path.c_str(), nullptr, out); });
  for (const int copies : {0, 1}) {
    tsr_load_options options = {};
    options.size = sizeof(options);
    options.copy_weights = copies;
    check("memory", [&](tsr_model** out) {
      return tsr_model_load_memory(archive.data(), archive.size(), &options, out);
    });
    check("reader", [&](tsr_model** out) {
      const auto read = [](void* user, uint64_t offset, void* buffer, size_t count) {
        std::memcpy(buffer, static_cast<const char*>(user) + offset, count);
        return 0;
      };
      const tsr_reader reader = {read, archive.size(), const_cast<char*>(archive.data())};
      return tsr_model_load_reader(&reader, &options, out);
    });
    check("descriptor", [&](tsr_model** out) {
      const std::string within = path + ".within";
      std::ofstream(within) << "seven b" << archive << "and what follows";
      const int descriptor = open(within.c_str(), O_RDONLY);
      tsr_status* const status =
          tsr_model_load_descriptor(descriptor, 7, archive.size(), &options, out);
      close(descriptor);
      return status;
    });
  }
}

TEST_P(EveryFamily, LoadsFromAnywhere) {
  ExpectLoadsFromAnywhere(SmallModelArchive(GetParam()), SmallModelFolder(GetParam()), GetParam());
}

TEST(GgufFiles, LoadFromAnywhere) {
  const std::string file = testing::TempDir() + "/gpt2.gguf";
  const std::string folder = file + ".folder";
  Status status = models::ConvertToGguf(SmallModelFolder("gpt2"), file);
  ASSERT_TRUE(status.ok()) << status;
  status = models::ConvertFromGguf(file, folder, /*overwrite=*/true);
  ASSERT_TRUE(status.ok()) << status;
  ExpectLoadsFromAnywhere(file, folder, "gpt2");
}

TEST_P(EveryFamily, EmbeddingsAreMeansOfHiddenStates) {
  if (std::string(GetParam()) == "vit") return;  // pictures have no tokens: see the next test
  const ModelHandle model = LoadHandle(SmallModelFolder(GetParam()));
  const ContextHandle context = ContextOf(model);
  const auto reference = Reference(GetParam());
  const std::vector<int64_t> ids = {7, 1, 50, 3};
  Bundle in = {{keys::kInputIds, Tensor::FromVector(ids, {1, 4})}};
  if (const auto* both = reference->encoder_decoder()) {
    in.set(keys::kDecoderInputIds,
           Tensor::FromVector(std::vector<int64_t>{both->decoder_start()}, {1, 1}));
  }
  const NoGrad no_grad;
  const Bundle out = reference->Run(in, {});
  const Tensor* hidden = out.FindNamed("encoder_last_hidden_state");
  if (hidden == nullptr) hidden = &out.at(keys::kLastHiddenState);
  const std::vector<float> all = hidden->ToVector<float>();
  const auto width = static_cast<size_t>(hidden->size(2));
  EXPECT_EQ(hidden->size(2), reference->hidden_size());
  std::vector<float> vector(width);
  const auto embed = [&](int pooling, int normalise) {
    tsr_embed_options options = {};
    options.size = sizeof(options);
    options.pooling = pooling;
    options.normalise = normalise;
    std::string message;
    EXPECT_EQ(CodeOf(tsr_embed(context.get(), ids.data(), ids.size(), &options, vector.data(),
                               vector.size()),
                     &message),
              TSR_OK)
        << message;
  };
  embed(TSR_POOLING_MEAN, 0);
  for (size_t c = 0; c < width; ++c) {
    EXPECT_NEAR(vector[c], (all[c] + all[width + c] + all[2 * width + c] + all[3 * width + c]) / 4,
                1e-6);
  }
  embed(TSR_POOLING_FIRST, 0);
  EXPECT_EQ(vector, std::vector<float>(all.begin(), all.begin() + static_cast<long>(width)));
  embed(TSR_POOLING_LAST, 0);
  EXPECT_EQ(vector, std::vector<float>(all.end() - static_cast<long>(width), all.end()));
  embed(TSR_POOLING_LAST, 1);
  double squares = 0;
  for (const float x : vector) squares += double{x} * x;
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST(CApiTest, PicturesBecomeWhatTheModelTakes) {
  const ModelHandle model = LoadHandle(SmallModelFolder("vit"));
  tsr_model_info info = {};
  info.size = sizeof(info);
  ASSERT_EQ(CodeOf(tsr_model_describe(model.get(), &info)), TSR_OK);
  EXPECT_EQ(info.labels, 3);
  EXPECT_STREQ(tsr_model_label(model.get(), 1), "dog");
  EXPECT_EQ(tsr_model_label(model.get(), 3), nullptr);
  EXPECT_EQ(tsr_model_label(model.get(), -1), nullptr);
  data::Image image{.height = 12, .width = 10, .channels = 3, .pixels = {}};
  for (int i = 0; i < 12 * 10 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i % 251));
  const auto processor = data::ImageProcessor::OfModel(SmallModelFolder("vit"), SmallConfig("vit"));
  std::vector<float> expected(static_cast<size_t>(processor->OutputSize()));
  processor->Apply(image, expected.data());
  std::vector<float> values(expected.size());
  size_t count = 0;
  ASSERT_EQ(
      CodeOf(tsr_pixel_values(model.get(), image.pixels.data(), 12, 10, 3, nullptr, 0, &count)),
      TSR_OK);
  EXPECT_EQ(count, expected.size());
  EXPECT_EQ(CodeOf(tsr_pixel_values(model.get(), image.pixels.data(), 12, 10, 3, values.data(),
                                    values.size() - 1, &count)),
            TSR_OUT_OF_RANGE);
  ASSERT_EQ(CodeOf(tsr_pixel_values(model.get(), image.pixels.data(), 12, 10, 3, values.data(),
                                    values.size(), &count)),
            TSR_OK);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(info.image_channels * info.image_height * info.image_width,
            static_cast<int64_t>(expected.size()));
}

TEST(CApiTest, GeneratesWhatTheModelGenerates) {
  for (const char* model_type : {"gpt2", "t5"}) {
    const ModelHandle model = LoadHandle(SmallModelFolder(model_type));
    const ContextHandle context = ContextOf(model);
    const auto reference = Reference(model_type);
    auto config = models::ReadGenerationConfig(SmallModelFolder(model_type), reference->config());
    ASSERT_TRUE(config.ok()) << config.status();
    struct Case {
      tsr_generate_options asked;
      nlohmann::json request = nlohmann::json::object();
    };
    std::vector<Case> cases(4);
    for (Case& c : cases) {
      c.asked = {};
      c.asked.size = sizeof(c.asked);
      c.asked.max_new_tokens = 9;
      c.request["max_new_tokens"] = 9;
    }
    cases[1].asked.temperature = 0.7;
    cases[1].asked.seed = 11;
    cases[1].request["temperature"] = 0.7;
    cases[1].request["seed"] = 11;
    cases[2].asked.top_k = 5;
    cases[2].asked.top_p = 0.9;
    cases[2].asked.repetition_penalty = 1.3;
    cases[2].request["top_k"] = 5;
    cases[2].request["top_p"] = 0.9;
    cases[2].request["repetition_penalty"] = 1.3;
    cases[3].asked.num_beams = 3;
    cases[3].asked.length_penalty = 0.5;
    cases[3].request["num_beams"] = 3;
    cases[3].request["length_penalty"] = 0.5;
    for (const Case& c : cases) {
      const auto wanted = models::WithSettings(*config, c.request);
      ASSERT_TRUE(wanted.ok()) << wanted.status();
      const NoGrad no_grad;
      const auto expected = models::Generate(*reference, {{5, 6, 7}}, *wanted);
      ASSERT_TRUE(expected.ok()) << expected.status();
      EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &c.asked).ids, expected->front().ids);
    }
  }
}

// Every generation setting by its name, beside what the model gives for it.
TEST(CApiTest, SettingsAreSetByName) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  const auto reference = Reference("gpt2");
  const auto config = models::ReadGenerationConfig(SmallModelFolder("gpt2"), reference->config());
  ASSERT_TRUE(config.ok()) << config.status();
  using Settings = std::vector<std::pair<const char*, const char*>>;
  for (const Settings& settings :
       {Settings{{"presence_penalty", "1.5"}}, Settings{{"frequency_penalty", "-2"}},
        Settings{{"logit_bias", "7:100"}}, Settings{{"suppress_tokens", "1,2,3"}},
        Settings{{"no_repeat_ngram_size", "1"}}, Settings{{"max_new_tokens", "3"}},
        Settings{{"min_new_tokens", "6"}, {"temperature", "1.2"}, {"seed", "-5"}},
        Settings{{"num_beams", "2"}, {"length_penalty", "0.5"}, {"early_stopping", "true"}}}) {
    tsr_generate_options options = {};
    options.size = sizeof(options);
    options.max_new_tokens = 9;
    nlohmann::json asked = {{"max_new_tokens", 9}};
    for (const auto& [name, value] : settings) {
      ASSERT_EQ(CodeOf(tsr_generate_options_set(&options, name, value)), TSR_OK) << name;
      asked[name] = models::GenerationConfig::Table().Find(name)->FromText(value);
    }
    const auto wanted = models::WithSettings(*config, asked);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const NoGrad no_grad;
    const auto expected = models::Generate(*reference, {{5, 6, 7}}, *wanted);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &options).ids, expected->front().ids)
        << settings[0].first;
    tsr_generate_options copy = options;
    tsr_generate_options_clear(&options);
    EXPECT_EQ(options.settings, nullptr);
    Generated ignored;
    const int64_t id = 5;
    EXPECT_EQ(CodeOf(tsr_generate(context.get(), &id, 1, &copy, Collect, &ignored)),
              TSR_INVALID_ARGUMENT);
    EXPECT_EQ(CodeOf(tsr_generate_options_set(&copy, "top_k", "1")), TSR_INVALID_ARGUMENT);
    tsr_generate_options_clear(&copy);
    EXPECT_EQ(options.max_new_tokens, 9);
  }
  tsr_generate_options options = {};
  EXPECT_EQ(CodeOf(tsr_generate_options_set(&options, "top_p", "1")), TSR_INVALID_ARGUMENT);
  options.size = sizeof(options);
  for (const Option& option : models::GenerationConfig::Table().options()) {
    if (option.default_value().is_null() || option.default_value().empty()) continue;
    const std::string text = option.ToText(option.default_value());
    EXPECT_EQ(CodeOf(tsr_generate_options_set(&options, option.key.c_str(), text.c_str())), TSR_OK)
        << option.key;
  }
  for (const auto& [name, value] : Settings{{"top_p", "2"},
                                            {"top_p", "x"},
                                            {"tpo_p", "1"},
                                            {"top_p", nullptr},
                                            {nullptr, "1"},
                                            {"logit_bias", "1"},
                                            {"logit_bias", "a:1"},
                                            {"seed", "1.5"},
                                            {"stop", "\xff"}}) {
    EXPECT_EQ(CodeOf(tsr_generate_options_set(&options, name, value)), TSR_INVALID_ARGUMENT)
        << (value == nullptr ? "NULL" : value);
  }
  EXPECT_EQ(CodeOf(tsr_generate_options_set(nullptr, "top_p", "1")), TSR_INVALID_ARGUMENT);
  // One text more each time.
  ASSERT_EQ(CodeOf(tsr_generate_options_set(&options, "stop", "a")), TSR_OK);
  ASSERT_EQ(CodeOf(tsr_generate_options_set(&options, "stop_strings", "b")), TSR_OK);
  tsr_generate_options_clear(&options);
  tsr_generate_options_clear(nullptr);
}

TEST(CApiTest, TextIsStreamedAndEndsWhereItIsTold) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 12;
  options.sampling = TSR_SAMPLING_ON;
  Generated all;
  ASSERT_EQ(CodeOf(tsr_generate_text(context.get(), "Hello", 5, &options, Collect, &all)), TSR_OK);
  EXPECT_EQ(all.ids.size(), 12u);
  EXPECT_EQ(all.end, TSR_END_LENGTH);
  std::vector<char> text(all.text.size() + 1);
  size_t length = 0;
  ASSERT_EQ(CodeOf(tsr_detokenize(model.get(), all.ids.data(), all.ids.size(), nullptr, text.data(),
                                  text.size(), &length)),
            TSR_OK);
  EXPECT_EQ(std::string(text.data(), length), all.text);
  // Bytes that are whole characters by themselves, so that they may be a stop text.
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  const auto at = std::find_if(all.text.begin() + 1, all.text.end(), plain);
  if (at != all.text.end()) {
    const std::string stop(1, *at);
    const char* const stops[] = {stop.c_str()};
    options.stop = stops;
    options.stop_count = 1;
    Generated cut;
    ASSERT_EQ(CodeOf(tsr_generate_text(context.get(), "Hello", 5, &options, Collect, &cut)),
              TSR_OK);
    EXPECT_EQ(cut.text, all.text.substr(0, all.text.find(stop)));
    EXPECT_EQ(cut.end, TSR_END_STOP);
  }
  int calls = 0;
  const auto third = [](void* user, const tsr_token*) {
    return ++*static_cast<int*>(user) == 3 ? 1 : 0;
  };
  options.stop_count = 0;
  EXPECT_EQ(CodeOf(tsr_generate_text(context.get(), "Hello", 5, &options, third, &calls)), TSR_OK);
  EXPECT_EQ(calls, 3);
}

// A folder of its own, with these files beside the model's.
std::string FolderWith(const std::string& name,
                       const std::vector<std::pair<std::string, std::string>>& files) {
  const std::string folder = testing::TempDir() + "/with_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::copy(SmallModelFolder("gpt2"), folder);
  for (const auto& [file, text] : files) {
    std::filesystem::create_directories(std::filesystem::path(folder + "/" + file).parent_path());
    std::ofstream(folder + "/" + file) << text;
  }
  return folder;
}

TEST(CApiTest, TextFitsASchema) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 27;
  options.json_schema = R"({"type": "array", "items": {"type": "boolean"}, "maxItems": 3})";
  std::string message;
  const auto write = [&](Generated* text) {
    return CodeOf(tsr_generate_text(context.get(), "Hello", 5, &options, Collect, text), &message);
  };
  Generated text, plain;
  ASSERT_EQ(write(&text), TSR_OK) << message;
  EXPECT_TRUE(nlohmann::json::parse(text.text, nullptr, false).is_array()) << text.text;
  options.num_beams = 2;
  EXPECT_EQ(write(&plain), TSR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("json_schema does not go with num_beams"), std::string::npos) << message;
  options.num_beams = 0;
  options.json_schema = R"({"uniqueItems": true})";
  EXPECT_EQ(write(&plain), TSR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("json_schema: 'uniqueItems'"), std::string::npos) << message;
  options.json_schema = "";
  ASSERT_EQ(write(&plain), TSR_OK) << message;
  EXPECT_NE(plain.text, text.text);
}

TEST(CApiTest, AConversationIsAnsweredAsTheTemplateWritesIt) {
  const ModelHandle model = LoadHandle(FolderWith(
      "template", {{"chat_template.jinja",
                    "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content ~ ' ' }}{% endfor %}"
                    "{% if add_generation_prompt %}a:{% endif %}"}}));
  const ContextHandle context = ContextOf(model);
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 5;
  const auto chat = [&](const std::string& messages, Generated* answer, std::string* message) {
    return CodeOf(
        tsr_chat(context.get(), messages.data(), messages.size(), &options, Collect, answer),
        message);
  };
  const std::string list = R"([{"role": "user", "content": "Hi"}])";
  std::string message;
  Generated answer, same, prompt;
  ASSERT_EQ(chat(list, &answer, &message), TSR_OK) << message;
  EXPECT_EQ(answer.ids.size(), 5u);
  ASSERT_EQ(chat(R"({"messages": )" + list + "}", &same, &message), TSR_OK) << message;
  EXPECT_EQ(same.ids, answer.ids);
  ASSERT_EQ(CodeOf(tsr_generate_text(context.get(), "u:Hi a:", 7, &options, Collect, &prompt)),
            TSR_OK);
  EXPECT_EQ(prompt.ids, answer.ids);
  // What is answered, in tokens and as a message.
  int64_t ids[64];
  size_t count = 0;
  ASSERT_EQ(CodeOf(tsr_chat_prompt(model.get(), list.data(), list.size(), ids, 64, &count)),
            TSR_OK);
  EXPECT_EQ(std::string(ids, ids + count), "u:Hi a:");
  EXPECT_EQ(CodeOf(tsr_chat_prompt(model.get(), list.data(), list.size(), ids, 3, &count)),
            TSR_OUT_OF_RANGE);
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(chat("[", &same, &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message.find("messages: "), 0u) << message;
  EXPECT_EQ(chat("7", &same, &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "messages: neither an object nor a list");
  EXPECT_EQ(chat(R"({"messages": )" + list + R"(, "seed": null, "tool": []})", &same, &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message,
            "messages: unknown key 'tool'; did you mean 'tools'?; there are messages, tools "
            "and chat_template_kwargs, and settings are given apart");
  // Without a template.
  const ModelHandle plain = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle other = ContextOf(plain);
  EXPECT_EQ(CodeOf(tsr_chat(other.get(), list.data(), list.size(), nullptr, Collect, &same)),
            TSR_NOT_FOUND);
}

TEST(CApiTest, AnAnswerBecomesAMessage) {
  const ModelHandle model = LoadHandle(FolderWith(
      "tools", {{"chat_template.jinja",
                 "{% if think %}T{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
                 "{# <tool_call>{...}</tool_call> </think> #}"}}));
  const auto message_of = [&](const std::string& request, const std::string& answer) {
    // Bytes are the tokens, the last one ends the text.
    std::vector<int64_t> ids(answer.begin(), answer.end());
    ids.push_back(256);
    char json[512];
    size_t length = 0;
    std::string message;
    EXPECT_EQ(CodeOf(tsr_chat_message(model.get(), request.data(), request.size(), ids.data(),
                                      ids.size(), json, sizeof(json), &length),
                     &message),
              TSR_OK)
        << message;
    return std::string(json, length);
  };
  const std::string tools = R"({"messages": [{"role": "user", "content": "Hi"}],)"
                            R"( "tools": [{"type": "function", "function": {"name": "f"}}]})";
  EXPECT_EQ(message_of(tools, "Words."), R"({"role":"assistant","content":"Words."})");
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  EXPECT_EQ(
      message_of(tools, "<think>So</think>" + call + call),
      R"({"role":"assistant","content":null,"reasoning_content":"So","tool_calls":[)"
      R"({"id":"call_0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},)"
      R"({"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]})");
  // Without the tool it stays words.
  const std::string list = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(nlohmann::json::parse(message_of(list, call))["content"], call);
  // Variables reach the template.
  int64_t ids[8];
  size_t count = 0;
  const std::string thinks =
      R"({"messages": )" + list + R"(, "chat_template_kwargs": {"think": true}})";
  ASSERT_EQ(CodeOf(tsr_chat_prompt(model.get(), thinks.data(), thinks.size(), ids, 8, &count)),
            TSR_OK);
  EXPECT_EQ(std::string(ids, ids + count), "THi");
  const std::string wrong = R"({"messages": )" + list + R"(, "chat_template_kwargs": 3})";
  EXPECT_EQ(CodeOf(tsr_chat_prompt(model.get(), wrong.data(), wrong.size(), ids, 8, &count)),
            TSR_INVALID_ARGUMENT);
}

TEST(CApiTest, PoolingIsTheFoldersWhereItIsAskedFor) {
  const auto embed = [](const std::string& modes, int pooling, std::string* message) {
    const ModelHandle model = LoadHandle(FolderWith("pooling", {{"1_Pooling/config.json", modes}}));
    const ContextHandle context = ContextOf(model);
    tsr_model_info info = {};
    info.size = sizeof(info);
    EXPECT_EQ(CodeOf(tsr_model_describe(model.get(), &info)), TSR_OK);
    const bool whole = pooling == TSR_POOLING_OF_MODEL && info.embedding_size > 0;
    std::vector<float> vector(static_cast<size_t>(whole ? info.embedding_size : info.hidden_size));
    const std::vector<int64_t> ids = {7, 1, 50};
    tsr_embed_options options = {};
    options.size = sizeof(options);
    options.pooling = pooling;
    const int code = CodeOf(
        tsr_embed(context.get(), ids.data(), ids.size(), &options, vector.data(), vector.size()),
        message);
    return code == TSR_OK ? vector : std::vector<float>();
  };
  std::string message;
  const std::string first =
      R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})";
  const std::string last = R"({"pooling_mode_lasttoken": true})";
  const std::string mixed = R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})";
  EXPECT_EQ(embed(first, TSR_POOLING_OF_MODEL, &message),
            embed(first, TSR_POOLING_FIRST, &message));
  EXPECT_EQ(embed(last, TSR_POOLING_OF_MODEL, &message), embed(first, TSR_POOLING_LAST, &message));
  EXPECT_EQ(embed("{}", TSR_POOLING_OF_MODEL, &message), embed(first, TSR_POOLING_MEAN, &message));
  EXPECT_NE(embed(first, TSR_POOLING_FIRST, &message), embed(first, TSR_POOLING_LAST, &message));
  // Two stand one behind the other.
  std::vector<float> both = embed(mixed, TSR_POOLING_FIRST, &message);
  const std::vector<float> mean = embed(mixed, TSR_POOLING_MEAN, &message);
  both.insert(both.end(), mean.begin(), mean.end());
  EXPECT_EQ(embed(mixed, TSR_POOLING_OF_MODEL, &message), both);
  // What is not supported matters to embeddings that ask for it, and to nothing else.
  const std::string median = R"({"pooling_mode": "median"})";
  EXPECT_TRUE(embed(median, TSR_POOLING_OF_MODEL, &message).empty());
  EXPECT_NE(message.find("'median' is not supported"), std::string::npos) << message;
  EXPECT_FALSE(embed(median, TSR_POOLING_MEAN, &message).empty());
}

TEST(CApiTest, TokenizesThereAndBack) {
  const ModelHandle model = LoadHandle(SmallModelFolder("bert"));
  const std::string text = "ab c";
  int64_t ids[16];
  size_t count = 0;
  ASSERT_EQ(CodeOf(tsr_tokenize(model.get(), text.data(), text.size(), nullptr, ids, 16, &count)),
            TSR_OK);
  EXPECT_EQ(std::vector<int64_t>(ids, ids + count), (std::vector<int64_t>{2, 5, 8, 9, 3}));
  tsr_tokenize_options only = {};
  only.size = sizeof(only);
  only.text_only = 1;
  ASSERT_EQ(CodeOf(tsr_tokenize(model.get(), text.data(), text.size(), &only, ids, 16, &count)),
            TSR_OK);
  EXPECT_EQ(std::vector<int64_t>(ids, ids + count), (std::vector<int64_t>{5, 8, 9}));
  EXPECT_EQ(CodeOf(tsr_tokenize(model.get(), text.data(), text.size(), &only, ids, 2, &count)),
            TSR_OUT_OF_RANGE);
  EXPECT_EQ(count, 3u);
  char back[16];
  ASSERT_EQ(CodeOf(tsr_detokenize(model.get(), ids, 3, nullptr, back, 16, &count)), TSR_OK);
  EXPECT_EQ(std::string(back, count), text);
}

TEST(CApiTest, DescribesAModel) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  tsr_model_info info = {};
  info.size = sizeof(info);
  ASSERT_EQ(CodeOf(tsr_model_describe(model.get(), &info)), TSR_OK);
  EXPECT_STREQ(info.model_type, "gpt2");
  EXPECT_STREQ(info.architecture, "GPT2LMHeadModel");
  EXPECT_EQ(nlohmann::json::parse(info.config)["n_embd"], 24);
  EXPECT_EQ(info.hidden_size, 24);
  EXPECT_EQ(info.vocab_size, 257);
  EXPECT_EQ(info.max_positions, 32);
  EXPECT_EQ(info.generates, 1);
  EXPECT_EQ(info.has_tokenizer, 1);
  EXPECT_EQ(info.labels, 0);
  EXPECT_EQ(info.eos_token, 256);
  EXPECT_EQ(info.pad_token, -1);
  ASSERT_EQ(info.num_end_tokens, 1u);
  EXPECT_EQ(info.end_tokens[0], 256);
  EXPECT_EQ(info.image_width, 0);
  EXPECT_GT(info.parameters, 257 * 24);
  // An older program's struct is filled as far as it goes.
  tsr_model_info old = {};
  old.size = offsetof(tsr_model_info, config);
  ASSERT_EQ(CodeOf(tsr_model_describe(model.get(), &old)), TSR_OK);
  EXPECT_STREQ(old.architecture, "GPT2LMHeadModel");
  EXPECT_EQ(old.config, nullptr);
}

TEST(CApiTest, WhatIsInUseIsNotReleased) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  EXPECT_EQ(CodeOf(tsr_model_release(model.get())), TSR_BUSY);
  EXPECT_EQ(CodeOf(tsr_configure(nullptr)), TSR_BUSY);
  struct Inside {
    tsr_context* context;
    int release = 0, generate = 0, calls = 0;
  } inside = {context.get()};
  const auto callback = [](void* user, const tsr_token*) {
    auto* const self = static_cast<Inside*>(user);
    self->release = CodeOf(tsr_context_release(self->context));
    Generated ignored;
    const int64_t id = 1;
    self->generate = CodeOf(tsr_generate(self->context, &id, 1, nullptr, Collect, &ignored));
    return ++self->calls;
  };
  const int64_t id = 1;
  EXPECT_EQ(CodeOf(tsr_generate(context.get(), &id, 1, nullptr, callback, &inside)), TSR_OK);
  EXPECT_EQ(inside.calls, 1);
  EXPECT_EQ(inside.release, TSR_BUSY);
  EXPECT_EQ(inside.generate, TSR_BUSY);
}

TEST(CApiTest, StaleAndForeignHandlesAreRefused) {
  tsr_model* model = LoadHandle(SmallModelFolder("gpt2")).release();
  tsr_context* context = nullptr;
  ASSERT_EQ(CodeOf(tsr_context_create(model, nullptr, &context)), TSR_OK);
  ASSERT_EQ(CodeOf(tsr_context_release(context)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_context_release(context)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_context_cancel(context)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_context_release(reinterpret_cast<tsr_context*>(model))),
            TSR_INVALID_ARGUMENT);
  ASSERT_EQ(CodeOf(tsr_model_release(model)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_model_release(model)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_context_create(model, nullptr, &context)), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_label(model, 0), nullptr);
  EXPECT_EQ(CodeOf(tsr_model_release(nullptr)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_context_release(nullptr)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_tensors_release(nullptr)), TSR_OK);
  tsr_status_release(nullptr);
  tsr_status* const status = tsr_model_load(nullptr, nullptr, &model);
  EXPECT_EQ(tsr_status_code(status), TSR_INVALID_ARGUMENT);
  tsr_status_release(status);
  tsr_status_release(status);
  EXPECT_EQ(tsr_status_code(status), TSR_INVALID_ARGUMENT);
  EXPECT_STREQ(tsr_status_message(status), "the pointer is not a status, or was released");
}

TEST(CApiTest, OptionsOfOtherVersions) {
  struct Later {
    tsr_context_options known;
    int64_t unknown;
  } later = {};
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const auto create = [&](size_t size, std::string* message) {
    later.known.size = size;
    tsr_context* context = nullptr;
    const int code = CodeOf(tsr_context_create(model.get(), &later.known, &context), message);
    EXPECT_EQ(CodeOf(tsr_context_release(context)), TSR_OK);
    return code;
  };
  std::string message;
  EXPECT_EQ(create(sizeof(size_t), &message), TSR_OK);
  EXPECT_EQ(create(sizeof(Later), &message), TSR_OK);
  later.unknown = 1;
  EXPECT_EQ(create(sizeof(Later), &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_context_options: a member that version " TSR_VERSION " does not know");
  EXPECT_EQ(create(0, &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_context_options: size is 0; set it to sizeof(tsr_context_options)");
  EXPECT_EQ(create(SIZE_MAX, &message), TSR_INVALID_ARGUMENT);
}

TEST(CApiTest, FailuresSayWhatIsWrong) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  const int64_t shape[] = {1, 2};
  const int64_t ids[] = {1, 2000};
  tsr_named_tensor in = {"input_ids", TSR_INT64, 2, shape, ids, sizeof(ids)};
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  const auto forward = [&] {
    std::string message;
    EXPECT_NE(CodeOf(tsr_forward(context.get(), &in, 1, &out, &count), &message), TSR_OK);
    EXPECT_EQ(out, nullptr);
    return message;
  };
  EXPECT_EQ(forward(),
            "tsr_forward: 'input_ids': 2000 (row 0, position 1) is beyond the model's vocabulary "
            "of 257");
  in.bytes = 8;
  EXPECT_EQ(forward(), "tsr_forward: 'input_ids': 8 bytes, where int64 and the shape need 16");
  in.bytes = 16;
  in.name = "inputs";
  EXPECT_EQ(forward().substr(0, 46), "tsr_forward: 'inputs' is no input of gpt2; inp");
  in.name = nullptr;
  EXPECT_EQ(forward(), "tsr_forward: tensor 0 has no name");
  in.name = "input_ids";
  in.dtype = 77;
  EXPECT_EQ(forward(), "tsr_forward: 'input_ids': dtype 77 is unknown");
  const int64_t large[] = {int64_t{1} << 40, int64_t{1} << 40};
  in = {"input_ids", TSR_INT64, 2, large, ids, 0};
  EXPECT_EQ(forward(), "tsr_forward: 'input_ids': a dimension of 1099511627776 cannot be");
  tsr_model* none = nullptr;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_model_load("/no/such", nullptr, &none), &message), TSR_NOT_FOUND);
  EXPECT_EQ(message, "/no/such: no such folder or archive");
  EXPECT_EQ(CodeOf(tsr_model_load("", nullptr, &none), &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "path is empty");
  EXPECT_EQ(CodeOf(tsr_model_load_memory("short", 5, nullptr, &none), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  Generated generated;
  EXPECT_EQ(CodeOf(tsr_generate(context.get(), ids, 2, nullptr, Collect, &generated), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "token id 2000 (row 0, position 1) is beyond the model's vocabulary of 257");
  EXPECT_EQ(
      CodeOf(tsr_generate_text(context.get(), "\xff", 1, nullptr, Collect, &generated), &message),
      TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "prompt: invalid UTF-8 at byte 0");
  tsr_context_options little = {};
  little.size = sizeof(little);
  little.memory_limit = 1;
  const ContextHandle poor = ContextOf(model, &little);
  EXPECT_EQ(CodeOf(tsr_generate(poor.get(), shape, 2, nullptr, Collect, &generated), &message),
            TSR_RESOURCE_EXHAUSTED);
  EXPECT_NE(message.find("memory of the context"), std::string::npos) << message;
}

TEST(CApiTest, LoadingIsFollowedAndCancelled) {
  struct Progress {
    uint64_t done = 0, total = 0;
    int calls = 0, cancels_at = -1;
  } progress;
  tsr_load_options options = {};
  options.size = sizeof(options);
  options.copy_weights = 1;
  options.progress_user = &progress;
  options.progress = [](void* user, uint64_t done, uint64_t total) {
    auto* const self = static_cast<Progress*>(user);
    EXPECT_GE(done, self->done);
    EXPECT_LE(done, total);
    self->done = done;
    self->total = total;
    // What loads runs on the threads and in the memory that this would change.
    EXPECT_EQ(CodeOf(tsr_configure(nullptr)), TSR_BUSY);
    return self->calls++ == self->cancels_at ? 1 : 0;
  };
  LoadHandle(SmallModelFolder("gpt2"), &options);
  EXPECT_GT(progress.calls, 1);
  EXPECT_EQ(progress.done, progress.total);
  EXPECT_GT(progress.total, 0u);
  progress = {};
  progress.cancels_at = 1;
  tsr_model* model = nullptr;
  EXPECT_EQ(CodeOf(tsr_model_load(SmallModelFolder("gpt2").c_str(), &options, &model)),
            TSR_CANCELLED);
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(CodeOf(tsr_configure(nullptr)), TSR_OK);
}

// The folder of an adapter of GPT-2's with random numbers.
std::string AdapterFolder(const std::string& name, uint64_t seed) {
  const auto model = Reference("gpt2");
  models::AdapterConfig config;
  config.target_modules.names = {name};
  const auto adapter = models::AttachAdapter(*model, config);
  EXPECT_TRUE(adapter.ok()) << adapter.status();
  for (nn::Parameter* p : models::ParametersOf(*adapter)) {
    p->init = nn::Init::Normal(0.3);
    nn::InitialiseParameter(*p, seed);
  }
  std::string folder = testing::TempDir() + "/adapter_" + name;
  const Status saved = models::SaveAdapter(*model, config, *adapter, folder);
  EXPECT_TRUE(saved.ok()) << saved;
  return folder;
}

TEST(CApiTest, EachContextRunsOneOfTheModelsAdapters) {
  const std::string base = SmallModelFolder("gpt2");
  const std::string folders[] = {AdapterFolder("c_attn", 1), AdapterFolder("c_fc", 2)};
  const char* const names[] = {folders[0].c_str(), folders[1].c_str()};
  const auto expected = [&](const std::vector<std::string>& adapters) {
    const auto model = models::LoadModel(base, {.require_weights = true, .adapters = adapters});
    EXPECT_TRUE(model.ok()) << model.status();
    const NoGrad no_grad;
    return TextOf((*model)->Run(SmallInputs("gpt2"), {}));
  };
  tsr_load_options load = {};
  load.size = sizeof(load);
  load.adapters = names;
  load.num_adapters = 2;
  const ModelHandle model = LoadHandle(base, &load);
  tsr_context_options options = {};
  options.size = sizeof(options);
  const auto given = [&](int adapter) {
    options.adapter = adapter;
    return ContextOf(model, &options);
  };
  EXPECT_EQ(ForwardText(given(0).get(), "gpt2"), expected({folders[0]}));
  EXPECT_EQ(ForwardText(given(1).get(), "gpt2"), expected({folders[1]}));
  EXPECT_EQ(ForwardText(given(-1).get(), "gpt2"), expected({}));
  EXPECT_NE(expected({folders[0]}), expected({}));
  EXPECT_NE(expected({folders[0]}), expected({folders[1]}));
  // Generation takes the same.
  const std::vector<int64_t> with_one = GenerateWith(given(0).get(), {5, 9}).ids;
  EXPECT_EQ(with_one, GenerateWith(given(0).get(), {5, 9}).ids);
  const auto reference = models::LoadModel(base, {.adapters = {folders[0]}});
  const auto config = models::ReadGenerationConfig(base, (*reference)->config());
  EXPECT_EQ(with_one, models::Generate(**reference, {{5, 9}}, *config)->front().ids);

  std::string message;
  tsr_context* context = nullptr;
  options.adapter = 2;
  EXPECT_EQ(CodeOf(tsr_context_create(model.get(), &options, &context), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_context_options: adapter is 2; the model was loaded with 2");
  tsr_model* none = nullptr;
  const char* const missing[] = {base.c_str()};
  load.adapters = missing;
  load.num_adapters = 1;
  EXPECT_EQ(CodeOf(tsr_model_load(base.c_str(), &load, &none), &message), TSR_NOT_FOUND);
  EXPECT_NE(message.find("is no adapter"), std::string::npos) << message;
  load.adapters = nullptr;
  EXPECT_EQ(CodeOf(tsr_model_load(base.c_str(), &load, &none), &message), TSR_INVALID_ARGUMENT);
}

TEST(CApiTest, WeightsAreHeldAsAskedFor) {
  const std::string base = SmallModelFolder("gpt2");
  tsr_load_options load = {};
  load.size = sizeof(load);
  const std::string dense =
      ForwardText(ContextOf(LoadHandle(base, nullptr), nullptr).get(), "gpt2");
  const std::pair<tsr_weights, QuantType> types[] = {
      {TSR_WEIGHTS_INT8, QuantType::kInt8},   {TSR_WEIGHTS_Q8_0, QuantType::kQ8_0},
      {TSR_WEIGHTS_Q4_0, QuantType::kQ4_0},   {TSR_WEIGHTS_Q4_1, QuantType::kQ4_1},
      {TSR_WEIGHTS_Q5_0, QuantType::kQ5_0},   {TSR_WEIGHTS_Q5_1, QuantType::kQ5_1},
      {TSR_WEIGHTS_Q2_K, QuantType::kQ2K},    {TSR_WEIGHTS_Q3_K, QuantType::kQ3K},
      {TSR_WEIGHTS_Q4_K, QuantType::kQ4K},    {TSR_WEIGHTS_Q5_K, QuantType::kQ5K},
      {TSR_WEIGHTS_Q6_K, QuantType::kQ6K},    {TSR_WEIGHTS_IQ4_NL, QuantType::kIq4Nl},
      {TSR_WEIGHTS_IQ4_XS, QuantType::kIq4Xs}};
  for (const auto& [weights, type] : types) {
    load.weights = weights;
    // The longest rows have 96 elements.
    if (96 % kQuantLayouts[static_cast<size_t>(type)].columns != 0) {
      tsr_model* none = nullptr;
      std::string message;
      EXPECT_EQ(CodeOf(tsr_model_load(base.c_str(), &load, &none), &message), TSR_INVALID_ARGUMENT);
      EXPECT_EQ(message, base + ": no weight can be " + std::string(QuantTypeName(type)) +
                             ", which needs rows of a multiple of 256 numbers");
      continue;
    }
    const ModelHandle model = LoadHandle(base, &load);
    const auto expected = models::LoadModel(base, {.require_weights = true, .quantize = type});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const NoGrad no_grad;
    const std::string text = TextOf((*expected)->Run(SmallInputs("gpt2"), {}));
    EXPECT_EQ(ForwardText(ContextOf(model, nullptr).get(), "gpt2"), text) << weights;
    EXPECT_NE(text, dense) << weights;
  }
  std::string message;
  tsr_model* none = nullptr;
  load.weights = 14;
  EXPECT_EQ(CodeOf(tsr_model_load(base.c_str(), &load, &none), &message), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_load_options: weights 14 is unknown");
}

TEST(CApiTest, AReaderThatFailsIsAStatus) {
  const std::string archive = *ReadFile(SmallModelArchive("gpt2"));
  for (int good : {0, 1, 5, 12}) {
    struct Source {
      const std::string* bytes;
      int good;
    } source = {&archive, good};
    const auto read = [](void* user, uint64_t offset, void* buffer, size_t count) {
      auto* const self = static_cast<Source*>(user);
      if (self->good-- <= 0) return 42;
      std::memcpy(buffer, self->bytes->data() + offset, count);
      return 0;
    };
    const tsr_reader reader = {read, archive.size(), &source};
    tsr_model* model = nullptr;
    std::string message;
    EXPECT_EQ(CodeOf(tsr_model_load_reader(&reader, nullptr, &model), &message), TSR_UNAVAILABLE);
    EXPECT_NE(message.find("the reader failed with 42"), std::string::npos) << message;
  }
}

TEST(CApiTest, ACallIsCancelledFromAnotherThread) {
  const ModelHandle model = LoadHandle(SmallModelFolder("t5"));
  const ContextHandle context = ContextOf(model);
  EXPECT_EQ(CodeOf(tsr_context_cancel(context.get())), TSR_OK);  // nothing runs: nothing happens
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 1 << 20;
  std::atomic<int> tokens = 0;
  std::atomic<int> code = -1;
  std::chrono::steady_clock::time_point ended;
  std::thread running([&] {
    const int64_t id = 1;
    const auto count = [](void* user, const tsr_token*) {
      ++*static_cast<std::atomic<int>*>(user);
      return 0;
    };
    // Texts that end by themselves begin again.
    int last = TSR_OK;
    while (last == TSR_OK) {
      last = CodeOf(tsr_generate(context.get(), &id, 1, &options, count, &tokens));
    }
    ended = std::chrono::steady_clock::now();
    code = last;
  });
  while (tokens < 3) std::this_thread::yield();
  const auto asked = std::chrono::steady_clock::now();
  // Between two texts nothing runs, and nothing is cancelled.
  while (code == -1) EXPECT_EQ(CodeOf(tsr_context_cancel(context.get())), TSR_OK);
  running.join();
  EXPECT_EQ(code, TSR_CANCELLED);
  EXPECT_LT(std::chrono::duration<double>(ended - asked).count(), 2.0);  // the figure: docs
  options.max_new_tokens = 4;
  EXPECT_FALSE(GenerateWith(context.get(), {1}, &options).ids.empty());
}

TEST(CApiTest, ArithmeticIsTheUsualOneInsideAndTheHostsOutside) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  const std::string expected = ForwardText(context.get(), "gpt2");
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
  constexpr int kTraps = FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW;
  feenableexcept(kTraps);
  const int traps = fegetexcept();
#if defined(__x86_64__)
  EXPECT_EQ(traps, kTraps);  // a processor of ARM64 need not have them; QEMU's has none
#endif
  EXPECT_EQ(ForwardText(context.get(), "gpt2"), expected);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(fegetexcept(), traps);
  std::fesetenv(&before);
}

TEST(CApiTest, RunsOnASmallStack) {
  const auto run = [](void*) -> void* {
    const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
    const ContextHandle context = ContextOf(model);
    EXPECT_FALSE(ForwardText(context.get(), "gpt2").empty());
    return nullptr;
  };
  SmallModelFolder("gpt2");
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(CApiTest, VersionIsTheHeaders) { EXPECT_STREQ(tsr_version(), TSR_VERSION); }

}  // namespace
}  // namespace tessera
