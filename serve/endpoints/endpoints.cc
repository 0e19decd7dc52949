// SPDX-License-Identifier: Apache-2.0
#include "serve/endpoints/endpoints.h"

namespace tessera::serve {

const std::vector<Endpoint>& Endpoints() {
  static const auto* const endpoints = new std::vector<Endpoint>{
      {"GET", "/", AnswerPage, /*open=*/true},
      {"POST", "/", AnswerChatGlm},
      {"GET", "/v1/models", AnswerModels},
      {"GET", "/v1/models/*", AnswerModel},
      {"POST", "/v1/completions", AnswerCompletions},
      {"POST", "/v1/chat/completions", AnswerChatCompletions},
      {"POST", "/v1/embeddings", AnswerEmbeddings},
      {"POST", "/v1/rerank", AnswerRerank},
      {"POST", "/tokenize", AnswerTokenize},
      {"POST", "/detokenize", AnswerDetokenize},
      {"GET", "/tokenizer_info", AnswerTokenizerInfo},
      {"GET", "/health", AnswerHealth, /*open=*/true},
      {"GET", "/load", AnswerLoad},
      {"GET", "/metrics", AnswerMetrics},
  };
  return *endpoints;
}

}  // namespace tessera::serve
