// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/chat/conversation_file.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kTemplate[] =
    "{% for m in messages %}{{ bos_token ~ m.role ~ ':' ~ m.content ~ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}";

class ChatFormatTest : public testing::Test {
 protected:
  ChatFormatTest()
      : root_(testing::TempDir() + "/chat_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/additional_chat_templates");
  }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name) << text;
    return root_ + "/" + name;
  }
  void PutConfig(const Json& chat_template) const {
    Json config = {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
    if (!chat_template.is_null()) config["chat_template"] = chat_template;
    Put("tokenizer_config.json", config.dump());
  }
  std::string Rendered(const Conversation& chat, bool prompts = false) const {
    const auto format = ChatFormat::OfFolder(root_);
    EXPECT_TRUE(format.ok()) << Message(format.status());
    if (!format.ok()) return "";
    const auto rendering = format->Render(chat, prompts);
    EXPECT_TRUE(rendering.ok()) << Message(rendering.status());
    return rendering.ok() ? rendering->text : "";
  }
  static Conversation Hello() {
    return {.messages = Json::parse(R"([{"role": "user", "content": "Hi"}])")};
  }

  const std::string root_;
};

TEST_F(ChatFormatTest, TheTemplateIsTheFoldersOwn) {
  EXPECT_EQ(Message(ChatFormat::OfFolder(root_).status()),
            "'" + root_ +
                "' has no chat template (chat_template.jinja, or 'chat_template' of "
                "tokenizer_config.json)");
  PutConfig(kTemplate);
  EXPECT_EQ(Rendered(Hello()), "<s>user:Hi</s>");
  EXPECT_EQ(Rendered(Hello(), /*prompts=*/true), "<s>user:Hi</s><s>assistant:");
  // One for tools.
  Conversation with_tools = Hello();
  with_tools.tools = Json::parse(R"([{"name": "b", "args": {"z": 1, "a": 2}}])");
  PutConfig({{{"name", "default"}, {"template", kTemplate}},
             {{"name", "tool_use"}, {"template", "{{ tools | tojson }}"}}});
  EXPECT_EQ(Rendered(Hello()), "<s>user:Hi</s>");
  EXPECT_EQ(Rendered(with_tools), R"([{"name": "b", "args": {"z": 1, "a": 2}}])");
  // A file of its own counts for more.
  Put("chat_template.jinja", "{{ messages | length }}");
  EXPECT_EQ(Rendered(Hello()), "1");
  Put("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(Rendered(with_tools), "tools");
}

TEST_F(ChatFormatTest, WhatIsWrongWithAFolderIsSaid) {
  const auto failure = [&] { return Message(ChatFormat::OfFolder(root_).status()); };
  const std::string config = root_ + "/tokenizer_config.json";
  PutConfig(3);
  EXPECT_EQ(failure(), config + ": 'chat_template' must be a text or a list of named ones");
  PutConfig(Json::array({{{"name", "default"}}}));
  EXPECT_EQ(failure(), config + ": 'chat_template' has an element without name and template");
  PutConfig("{% for m in messages %}");
  EXPECT_EQ(failure().find(config + ":1: "), 0u) << failure();
  PutConfig(nullptr);
  const std::string path = Put("chat_template.jinja", "\n\n{{ raise_exception('no system') }}");
  const auto rendering = ChatFormat::OfFolder(root_)->Render(Hello());
  EXPECT_EQ(Message(rendering.status()), path + ":3: no system");
}

TEST_F(ChatFormatTest, MessagesNeedNotNameThePath) {
  Put("chat_template.jinja", "\n{{ raise_exception('no system') }}");
  const auto rendering = ChatFormat::OfFolderWithoutPath(root_)->Render(Hello());
  EXPECT_EQ(Message(rendering.status()), "chat_template.jinja:2: no system");
}

// As a template takes them, whatever the interface of the record.
TEST_F(ChatFormatTest, ArgumentsOfCallsAreObjects) {
  const auto arguments = [](const std::string& call) {
    const auto record = Json::parse(
        R"({"messages":[{"role":"assistant","content":null,"tool_calls":[)" + call + "]}]}");
    const auto chat = ConversationOf(record, "x");
    if (!chat.ok()) return Message(chat.status());
    const Json& read = chat->messages[0]["tool_calls"][0];
    return (read.contains("function") ? read["function"] : read).dump();
  };
  const auto wrapped = [&](const std::string& text) {
    return arguments(R"({"type":"function","function":{"name":"f","arguments":)" + text + "}}");
  };
  const std::string expected = R"({"name":"f","arguments":{"b":"two \"x\"","a":1}})";
  EXPECT_EQ(wrapped(R"("{\"b\": \"two \\\"x\\\"\", \"a\": 1}")"), expected);
  EXPECT_EQ(wrapped(R"({"b":"two \"x\"","a":1})"), expected);
  EXPECT_EQ(arguments(R"({"name":"f","arguments":"{\"a\":1}"})"),
            R"({"name":"f","arguments":{"a":1}})");
  for (const char* none : {"\"\"", "null", "\"{}\"", "{}"}) {
    EXPECT_EQ(wrapped(none), R"({"name":"f","arguments":{}})") << none;
  }
  EXPECT_EQ(arguments(R"({"function":{"name":"f"}})"), R"({"name":"f","arguments":{}})");
  EXPECT_EQ(arguments(R"({"name":"f"})"), R"({"name":"f"})");
  EXPECT_EQ(wrapped(R"("[1, 2]")"), R"({"name":"f","arguments":[1,2]})");
  EXPECT_EQ(wrapped(R"("\"text\"")"), R"({"name":"f","arguments":"text"})");
  EXPECT_EQ(wrapped(R"("{\"a\"")"),
            "x: messages[0].tool_calls[0]: the arguments: not valid JSON at byte 5");
  // ShareGPT's calls may hold them as a text, too.
  const auto chat = ConversationOf(
      Json::parse(R"({"conversations":[{"from":"function_call",)"
                  R"("value":"{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}"}]})"),
      "x");
  ASSERT_TRUE(chat.ok()) << Message(chat.status());
  EXPECT_EQ(chat->messages[0]["tool_calls"][0]["function"].dump(),
            R"({"name":"f","arguments":{"a":1}})");
}

TEST_F(ChatFormatTest, ConversationsOfEveryForm) {
  const auto messages = [&](const std::string& text) {
    std::string all;
    const Status read = ForEachConversation(
        Put("chats.json", text), [&](const Conversation& chat, const std::string&) {
          all += chat.messages->dump() + (chat.tools->is_null() ? "" : chat.tools->dump()) + "\n";
          return OkStatus();
        });
    EXPECT_TRUE(read.ok()) << Message(read);
    return all;
  };
  const std::string turns =
      R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}])";
  EXPECT_EQ(messages("{\"messages\": " + turns + ", \"tools\": [{\"z\": 1, \"a\": 2}]}\n\n"),
            turns + R"([{"z":1,"a":2}])" + "\n");
  EXPECT_EQ(messages(R"([{"conversations": [{"from": "human", "value": "Hi"},)"
                     R"({"from": "gpt", "value": "Yes"}]}])"),
            turns + "\n");
  EXPECT_EQ(messages(R"({"prompt": [{"role": "user", "content": "Hi"}], "completion":)"
                     R"([{"role": "assistant", "content": "Yes"}], "tools": [7]})"),
            turns + "[7]\n");
  EXPECT_EQ(messages("{\"prompt\": " + turns + ", \"completion\": " + turns + "}"),
            R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes","weight":0},)" +
                turns.substr(1) + "\n");
  // OpenAI's messages under ShareGPT's name, and the system's words beside them.
  EXPECT_EQ(messages("{\"conversations\": " + turns + "}"), turns + "\n");
  for (const char* key : {"messages", "conversations"}) {
    const std::string with_system = R"([{"role":"system","content":"S"},)" + turns.substr(1);
    for (const std::string& said : {turns, with_system}) {
      EXPECT_EQ(messages(Concat("{\"", key, "\": ", said, R"(, "prompt": "Hi", "system": "S"})")),
                with_system + "\n");
    }
  }
  // What axolotl does not learn.
  for (const char* key : {R"("train": false)", R"("training": false)", R"("weight": 0)"}) {
    SCOPED_TRACE(key);
    for (const std::string& form :
         {Concat(R"([{"from": "human", "value": "Hi", )", key, "},",
                 R"({"from": "gpt", "value": "Yes", )", key, "},",
                 R"({"from": "gpt", "value": "No", "train": true}])"),
          Concat(R"([{"role": "assistant", "content": "Yes", )", key, "}]")}) {
      const std::string said = messages("{\"conversations\": " + form + "}");
      EXPECT_NE(said.find("\"weight\":0"), std::string::npos) << said;
      EXPECT_EQ(said.find("\"weight\":0"), said.rfind("\"weight\":0")) << said;
      EXPECT_LT(said.find("Yes"), said.find("\"weight\":0")) << said;
    }
  }
  EXPECT_EQ(messages(R"({"prompt": [{"role": "user", "content": "Hi"}]})"),
            R"([{"role":"user","content":"Hi"}])"
            "\n");
  const std::string called =
      R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"","tool_calls":)"
      R"([{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","content":"7"}][{"name":"f"}])"
      "\n";
  for (
      const char* text :
      {R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value":)"
       R"("{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"from": "observation", "value": "7"}],)"
       R"("system": "", "tools": "[{\"name\": \"f\"}]"})",
       R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value":)"
       R"("[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"}, {"from": "tool", "value": "7"}],)"
       R"("tools": [{"name": "f"}]})"}) {
    EXPECT_EQ(messages(text), called);
  }
  EXPECT_EQ(messages(R"({"instruction": "Add", "input": "1 1", "output": "2", "system": "S",)"
                     R"("history": [["Hi", "Yes"]]})"),
            R"([{"role":"system","content":"S"},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"Yes"},{"role":"user","content":"Add\n1 1"},)"
            R"({"role":"assistant","content":"2"}])"
            "\n");
}

// Records of every form may give the template variables of their own.
TEST_F(ChatFormatTest, RecordsHaveTemplateVariables) {
  Put("chat_template.jinja",
      "{% for m in messages %}{{ m.content }}{% endfor %}"
      "{% if enable_thinking is defined and not enable_thinking %}|quick{% endif %}");
  const auto format = ChatFormat::OfFolder(root_);
  ASSERT_TRUE(format.ok()) << Message(format.status());
  for (const std::string form :
       {R"("messages": [{"role": "user", "content": "Hi"}])",
        R"("conversations": [{"from": "human", "value": "Hi"}])", R"("instruction": "Hi")"}) {
    std::string texts;
    const auto record = [&](const std::string& more) { return "{" + form + more + "}\n"; };
    const Status read = ForEachConversation(
        Put("chats.jsonl", record(R"(, "chat_template_kwargs": {"enable_thinking": false})") +
                               record("") +
                               record(R"(, "chat_template_kwargs": {"enable_thinking": true})") +
                               record(R"(, "chat_template_kwargs": null)")),
        [&](const Conversation& chat, const std::string&) {
          const auto rendering = format->Render(chat);
          EXPECT_TRUE(rendering.ok()) << Message(rendering.status());
          if (rendering.ok()) texts += rendering->text + "\n";
          return OkStatus();
        });
    EXPECT_TRUE(read.ok()) << Message(read);
    EXPECT_EQ(texts, "Hi|quick\nHi\nHi\nHi\n");
  }
}

TEST_F(ChatFormatTest, BadRecordsAreNamed) {
  const auto failure = [&](const std::string& text) {
    const std::string path = Put("chats.jsonl", text);
    const Status read = ForEachConversation(
        path, [](const Conversation&, const std::string&) { return OkStatus(); });
    EXPECT_FALSE(read.ok());
    return Message(read).substr(path.size());
  };
  EXPECT_EQ(failure("{\"messages\": [{\"role\": \"user\"}]}\n{\"text\": 1}"),
            ":2: has none of 'messages', 'prompt', 'conversations' and 'instruction'");
  EXPECT_EQ(Message(ForEachConversation(
                Put("chats.csv", "instruction,output\na,b\n"),
                [](const Conversation&, const std::string&) { return OkStatus(); })),
            root_ +
                "/chats.csv"
                ": is a table of texts; records are read from .jsonl, .json, .parquet and .arrow");
  EXPECT_EQ(failure("{\"messages\": []}"), ":1: 'messages' is empty");
  EXPECT_EQ(failure(R"({"prompt": "Hi", "completion": "Yes"})"),
            ":1: 'prompt' is a text, and a conversation's is a list of messages: "
            R"([{"role": "user", "content": "..."}])");
  const std::string asked = R"({"prompt": [{"role": "user", "content": "Hi"}], "completion": )";
  EXPECT_EQ(failure(asked + "[]}"), ":1: 'completion' is empty");
  EXPECT_EQ(failure(asked + "{}}"), ":1: 'completion' must be a list of messages");
  EXPECT_EQ(failure(asked + "[{}]}"), ":1: completion[0] must be an object with a 'role'");
  for (const char* weight : {"2", "0.5", "-1", "true", "\"0\""}) {
    EXPECT_EQ(failure(Concat(R"({"messages": [{"role": "assistant", "weight": )", weight, "}]}")),
              ":1: messages[0]: 'weight' must be 0 or 1");
  }
  EXPECT_EQ(failure(R"({"conversations": [{"from": "gpt", "value": "a", "weight": 2}]})"),
            ":1: conversations[0]: 'weight' must be 0 or 1");
  EXPECT_EQ(failure(R"({"messages": [{"role": "assistant", "train": "no"}]})"),
            ":1: messages[0]: 'train' must be true or false");
  EXPECT_EQ(failure(R"({"messages": [{"role": "user"}], "system": ["S"]})"),
            ":1: 'system' must be a text");
  EXPECT_EQ(failure(R"({"messages": [{"role": "system", "content": "a"}], "system": "S"})"),
            ":1: 'system' differs from the system's message; leave one out");
  EXPECT_EQ(failure("{\"messages\": [{}]}"), ":1: messages[0] must be an object with a 'role'");
  EXPECT_EQ(failure(R"({"conversations": [{"from": "me", "value": "x"}]})"),
            ":1: conversations[0] is from \"me\", expected human, gpt, system, function_call or "
            "observation");
  EXPECT_EQ(failure(R"j({"conversations": [{"from": "function_call", "value": "f(1)"}]})j"),
            ":1: conversations[0]: not valid JSON at byte 2");
  EXPECT_EQ(failure(R"({"conversations": [{"from": "function_call", "value": "{}"}]})"),
            ":1: conversations[0]: a call must be an object with a 'name'");
  for (const char* nothing : {"[]", "null", "3"}) {
    EXPECT_EQ(failure(Concat(R"({"conversations": [{"from": "function_call", "value": ")", nothing,
                             R"("}]})")),
              ":1: conversations[0]: must hold a call, or a list of some");
  }
  EXPECT_EQ(failure(R"({"conversations": [{"from": "gpt", "value": "x"}], "tools": "{}"})"),
            ":1: 'tools' must be a list");
  EXPECT_EQ(failure(R"({"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}})"),
            ":1: 'tools' must be a list");
  EXPECT_EQ(failure(R"({"conversations": [{"from": "gpt", "value": "x"}], "system": 1})"),
            ":1: 'system' must be a text");
  EXPECT_EQ(failure(R"({"conversations": [{"from": "gpt", "value": "x"}], "tools": "["})"),
            ":1: 'tools': not valid JSON at byte 2");
  const std::string good = R"({"messages": [{"role": "user", "content": "x"}])";
  EXPECT_EQ(failure(good + "}\n" + good + R"(, "chat_template_kwargs": [1]})"),
            ":2: 'chat_template_kwargs' must be an object");
  EXPECT_EQ(failure(good + R"(, "chat_template_kwargs": {"tools": []}})"),
            ":1: 'chat_template_kwargs' must not have 'tools', which the template is given anyway");
  EXPECT_EQ(failure(R"({"instruction": 3})"), ":1: 'instruction' must be a text");
  EXPECT_EQ(failure(R"({"instruction": "a", "history": ["b"]})"),
            ":1: 'history' must be a list of [question, answer]");
  EXPECT_EQ(failure("{\"messages\""), ":1: not valid JSON at byte 12");
}

}  // namespace
}  // namespace tessera::data
