// SPDX-License-Identifier: Apache-2.0
#include "serve/inference_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "core/execution_context.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "nlohmann/json.hpp"

namespace tessera::serve {
namespace {

using models::GenerationResult;
using models::TextRequest;
using std::chrono::milliseconds;
using std::chrono::seconds;

class InferenceQueueTest : public testing::Test {
 protected:
  InferenceQueueTest() {
    const nlohmann::json config = {
        {"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 512},      {"n_embd", 16},
        {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.5}};
    auto model = models::BuildModel(config, {.seed = 1});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    model_ = *std::move(model);
  }

  // A model that takes a while for a prompt.
  static std::unique_ptr<models::Model> SlowModel() {
    const nlohmann::json config = {{"model_type", "gpt2"}, {"vocab_size", 257},
                                   {"n_positions", 512},   {"n_embd", 128},
                                   {"n_layer", 24},        {"n_head", 2}};
    auto model = models::BuildModel(config, {.seed = 1});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return *std::move(model);
  }

  static TextRequest Request(std::vector<int64_t> prompt, int64_t tokens) {
    TextRequest request = {.prompt = std::move(prompt), .adapter = nn::ForwardContext::kNoAdapter};
    request.config.Own().max_new_tokens = tokens;
    return request;
  }

  // A text's end, as a promise.
  struct End {
    std::promise<StatusOr<GenerationResult>> promise;
    StatusOr<GenerationResult> Get() {
      auto future = promise.get_future();
      EXPECT_EQ(future.wait_for(seconds(60)), std::future_status::ready);
      return future.get();
    }
  };
  static std::shared_ptr<End> Await(TextRequest* request) {
    auto end = std::make_shared<End>();
    request->on_end = [end](StatusOr<GenerationResult> result) {
      end->promise.set_value(std::move(result));
    };
    return end;
  }

  data::ByteTokenizer tokenizer_;
  std::unique_ptr<models::Model> model_;
};

TEST_F(InferenceQueueTest, TextsAreThoseOfGenerate) {
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t i = 0; i < 12; ++i) {
    prompts.emplace_back();
    for (int64_t j = 0; j <= 7 * i; ++j) prompts.back().push_back((j < 20 ? j : i * j) % 256);
  }
  models::GenerationConfig config;
  config.max_new_tokens = 20;
  const auto expected =
      models::Generate(*model_, prompts, config, {.adapter = nn::ForwardContext::kNoAdapter});
  ASSERT_TRUE(expected.ok());
  for (const int64_t slots : {1, 3, 16}) {
    InferenceQueue queue(*model_, &tokenizer_, {.slots = slots});
    std::vector<std::shared_ptr<End>> ends;
    for (const auto& prompt : prompts) {
      TextRequest request = Request(prompt, 20);
      ends.push_back(Await(&request));
      EXPECT_TRUE(queue.Submit("me", {std::move(request)}).ok());
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto result = ends[i]->Get();
      ASSERT_TRUE(result.ok()) << Message(result.status());
      EXPECT_EQ(result->ids, (*expected)[i].ids) << slots << " " << i;
    }
    queue.Drain(seconds(10));
    EXPECT_EQ(queue.state().ended, 12);
    EXPECT_EQ(queue.state().running.size(), 0u);
  }
}

TEST_F(InferenceQueueTest, ClientsTakeTurns) {
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 1});
  std::mutex mutex;
  std::vector<std::string> order;
  std::atomic<bool> begun = false;
  std::promise<void> all_there;
  std::vector<std::shared_ptr<End>> ends;
  const auto ask = [&](const std::string& client, int count) {
    std::vector<TextRequest> texts;
    for (int i = 0; i < count; ++i) {
      texts.push_back(Request({1, 2, 3}, 40));
      const auto end = std::make_shared<End>();
      ends.push_back(end);
      texts.back().on_end = [&, client, end](StatusOr<GenerationResult> result) {
        const std::lock_guard lock(mutex);
        order.push_back(client);
        end->promise.set_value(std::move(result));
      };
    }
    // The first waits until all have come.
    if (client == "a") {
      texts[0].on_token = [&](int64_t, std::string_view, const models::TokenScores*) {
        if (!begun.exchange(true)) all_there.get_future().wait();
        return OkStatus();
      };
    }
    EXPECT_TRUE(queue.Submit(client, std::move(texts)).ok());
  };
  ask("a", 8);
  ask("b", 2);
  ask("c", 1);
  all_there.set_value();
  for (const auto& end : ends) EXPECT_TRUE(end->Get().ok());
  const auto at = [&](const std::string& client, int n) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i] == client && n-- == 0) return i;
    }
    return order.size();
  };
  EXPECT_LE(at("c", 0), 3u);
  EXPECT_LE(at("b", 1), 6u);
}

TEST_F(InferenceQueueTest, RefusesWhatIsTooMuch) {
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 1, .max_waiting = 2});
  std::vector<TextRequest> many;
  for (int i = 0; i < 4; ++i) many.push_back(Request({1}, 5));
  EXPECT_EQ(Message(queue.Submit("a", many).status()),
            "the request has 4 texts; the server takes at most 3 at once");
  many.pop_back();
  TextRequest first = Request({1}, 500);
  const auto end = Await(&first);
  ASSERT_TRUE(queue.Submit("a", {std::move(first)}).ok());
  EXPECT_EQ(queue.Submit("a", many).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.state().refused, 3);
  EXPECT_TRUE(end->Get().ok());
  EXPECT_EQ(queue.Submit("a", {Request({300}, 5)}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(queue.Submit("a", {Request({1}, 600)}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(InferenceQueueTest, WhoIsCancelledIsNotCalledAgain) {
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 2});
  std::atomic<int> tokens = 0;
  std::atomic<bool> ended = false;
  std::vector<TextRequest> texts;
  for (int i = 0; i < 5; ++i) {
    texts.push_back(Request({1, 2}, 500));
    texts.back().on_token = [&](int64_t, std::string_view, const models::TokenScores*) {
      ++tokens;
      return OkStatus();
    };
    texts.back().on_end = [&](const StatusOr<GenerationResult>&) { ended = true; };
  }
  const auto ticket = queue.Submit("a", std::move(texts));
  ASSERT_TRUE(ticket.ok());
  while (tokens < 6) std::this_thread::sleep_for(milliseconds(1));
  queue.Cancel(*ticket);
  // Whoever comes then has the place.
  TextRequest next = Request({5}, 3);
  const auto end = Await(&next);
  ASSERT_TRUE(queue.Submit("b", {std::move(next)}).ok());
  EXPECT_TRUE(end->Get().ok());
  const int before = tokens;
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(tokens, before);
  EXPECT_FALSE(ended);
  EXPECT_EQ(queue.state().cancelled, 5);
  EXPECT_EQ(queue.state().running.size(), 0u);
}

TEST_F(InferenceQueueTest, WhoTakesEverythingBackMayComeAgain) {
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 1});
  TextRequest first = Request({1, 2}, 400);
  const auto first_end = Await(&first);
  ASSERT_TRUE(queue.Submit("a", {std::move(first)}).ok());
  for (int i = 0; i < 20; ++i) {
    const auto ticket = queue.Submit("b", {Request({3}, 5), Request({4}, 5)});
    ASSERT_TRUE(ticket.ok());
    queue.Cancel(*ticket);
  }
  TextRequest last = Request({5}, 5);
  const auto last_end = Await(&last);
  ASSERT_TRUE(queue.Submit("b", {std::move(last)}).ok());
  EXPECT_TRUE(first_end->Get().ok());
  EXPECT_TRUE(last_end->Get().ok());
  EXPECT_EQ(queue.state().waiting, 0);
}

TEST_F(InferenceQueueTest, TimeAndTheEnd) {
  {
    InferenceQueue queue(*model_, &tokenizer_, {.slots = 1, .timeout = milliseconds(3)});
    std::vector<TextRequest> texts = {Request({1}, 500), Request({2}, 500)};
    const auto first = Await(&texts[0]);
    const auto second = Await(&texts[1]);
    ASSERT_TRUE(queue.Submit("a", std::move(texts)).ok());
    EXPECT_EQ(first->Get().status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(second->Get().status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(queue.state().timed_out, 2);
  }
  std::vector<TextRequest> texts = {Request({1}, 300), Request({2}, 300)};
  const auto running = Await(&texts[0]);
  const auto waiting = Await(&texts[1]);
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 1});
  std::atomic<bool> begun = false;
  texts[0].on_token = [&](int64_t, std::string_view, const models::TokenScores*) {
    begun = true;
    return OkStatus();
  };
  ASSERT_TRUE(queue.Submit("a", std::move(texts)).ok());
  while (!begun) std::this_thread::sleep_for(milliseconds(1));
  queue.Drain(seconds(60));
  EXPECT_TRUE(running->Get().ok());
  EXPECT_EQ(waiting->Get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(queue.Submit("a", {Request({1}, 5)}).status().code(), StatusCode::kUnavailable);
}

TEST_F(InferenceQueueTest, WorkIsDoneBetweenPasses) {
  InferenceQueue queue(*model_, &tokenizer_, {.slots = 1});
  TextRequest text = Request({1}, 100);
  const auto end = Await(&text);
  ASSERT_TRUE(queue.Submit("a", {std::move(text)}).ok());
  std::promise<Status> done;
  int turns = 0;
  const auto work = [&](const Status& status) {
    if (status.ok() && ++turns < 5) return true;
    done.set_value(status);
    return false;
  };
  ASSERT_TRUE(queue.SubmitWork("b", work).ok());
  EXPECT_TRUE(done.get_future().get().ok());
  EXPECT_EQ(turns, 5);
  EXPECT_TRUE(end->Get().ok());
  // Work that is taken back while it is at it does not continue.
  std::promise<void> begun;
  std::promise<void> taken_back;
  std::atomic<int> calls = 0;
  const auto ticket = queue.SubmitWork("b", [&](const Status&) {
    if (++calls == 1) {
      begun.set_value();
      taken_back.get_future().wait();
    }
    return true;
  });
  ASSERT_TRUE(ticket.ok());
  begun.get_future().wait();
  queue.Cancel(*ticket);
  taken_back.set_value();
  queue.Drain(seconds(10));
  EXPECT_EQ(calls, 1);
}

// How a prompt is read depends on who else is there; that of 400 tokens begins with a piece of 32.
TEST_F(InferenceQueueTest, PiecesAreShortWhileOthersAreWritten) {
  const std::vector<int64_t> prompt(400, 7);
  InferenceQueueOptions options = {.slots = 2, .resting = 0};
  options.pass_time = milliseconds(0);
  options.reading_time = std::chrono::hours(1);
  InferenceQueue queue(*model_, &tokenizer_, options);
  for (const int64_t passes : {2, 1}) {
    const int64_t before = queue.state().batch.passes;
    TextRequest alone = Request(prompt, 1);
    const auto end = Await(&alone);
    ASSERT_TRUE(queue.Submit("a", {std::move(alone)}).ok());
    EXPECT_TRUE(end->Get().ok());
    EXPECT_EQ(queue.state().batch.passes - before, passes);
  }
  TextRequest other = Request({1}, 500);
  std::promise<void> begun;
  std::promise<void> all_there;
  int64_t tokens = 0;
  int64_t tokens_before_end = 0;
  other.on_token = [&](int64_t, std::string_view, const models::TokenScores*) {
    if (++tokens == 1) {
      begun.set_value();
      all_there.get_future().wait();
    }
    return OkStatus();
  };
  const auto other_end = Await(&other);
  ASSERT_TRUE(queue.Submit("a", {std::move(other)}).ok());
  begun.get_future().wait();
  TextRequest beside = Request(prompt, 1);
  std::promise<void> done;
  beside.on_end = [&](const StatusOr<GenerationResult>&) {
    tokens_before_end = tokens;
    done.set_value();
  };
  ASSERT_TRUE(queue.Submit("b", {std::move(beside)}).ok());
  all_there.set_value();
  done.get_future().wait();
  EXPECT_TRUE(other_end->Get().ok());
  EXPECT_GE(tokens_before_end, 400 / 24);
}

TEST_F(InferenceQueueTest, WhatNobodyWaitsForIsGivenUp) {
  const std::vector<int64_t> prompt(500, 7);
  const auto model = SlowModel();
  InferenceQueue queue(*model, &tokenizer_, {.slots = 2, .resting = 0});
  const auto read = [&] { return queue.state().batch.tokens_read; };
  for (int i = 0; i < 2; ++i) {  // so that it knows how long pieces may be
    TextRequest first = Request(prompt, 1);
    const auto end = Await(&first);
    ASSERT_TRUE(queue.Submit("a", {std::move(first)}).ok());
    EXPECT_TRUE(end->Get().ok());
  }
  // Whoever leaves has no place any more, and what was read for it is seldom whole.
  const int64_t before = read();
  for (int i = 0; i < 10; ++i) {
    const auto ticket = queue.Submit("a", {Request(prompt, 1)});
    ASSERT_TRUE(ticket.ok());
    while (queue.state().running.empty()) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(2));
    queue.Cancel(*ticket);
    EXPECT_TRUE(queue.state().running.empty());
  }
  TextRequest last = Request({1}, 1);
  const auto end = Await(&last);
  ASSERT_TRUE(queue.Submit("b", {std::move(last)}).ok());
  EXPECT_TRUE(end->Get().ok());
  EXPECT_LT(read() - before, 10 * 500);
  // Work, which would not end by itself.
  std::promise<void> begun;
  const auto ticket = queue.SubmitWork("a", [&](const Status& status) {
    if (!status.ok()) return false;
    begun.set_value();
    for (;;) StopIfCancelled();
  });
  ASSERT_TRUE(ticket.ok());
  begun.get_future().wait();
  queue.Cancel(*ticket);
  // One of two that are read together may stay.
  std::vector<TextRequest> two = {Request(prompt, 3), Request({7, 8}, 3)};
  const auto stays = Await(&two[1]);
  const auto leaves = queue.Submit("a", {std::move(two[0])});
  ASSERT_TRUE(leaves.ok());
  ASSERT_TRUE(queue.Submit("b", {std::move(two[1])}).ok());
  queue.Cancel(*leaves);
  EXPECT_TRUE(stays->Get().ok());
  EXPECT_EQ(queue.state().cancelled, 11);
}

TEST_F(InferenceQueueTest, TheEndDoesNotWaitForAPass) {
  const auto queue =
      std::make_unique<InferenceQueue>(*model_, &tokenizer_, InferenceQueueOptions{.slots = 1});
  std::promise<void> begun;
  Status told;
  const auto ticket = queue->SubmitWork("a", [&](const Status& status) {
    told = status;
    if (!status.ok()) return false;
    begun.set_value();
    for (;;) StopIfCancelled();
  });
  ASSERT_TRUE(ticket.ok());
  begun.get_future().wait();
  queue->Drain(milliseconds(10));
  EXPECT_EQ(told.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera::serve
