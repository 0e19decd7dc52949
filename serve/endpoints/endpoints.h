// SPDX-License-Identifier: Apache-2.0
// All addresses of the server.
#ifndef TESSERA_SERVE_ENDPOINTS_ENDPOINTS_H_
#define TESSERA_SERVE_ENDPOINTS_ENDPOINTS_H_

#include <vector>

#include "serve/service.h"

namespace tessera::serve {

const std::vector<Endpoint>& Endpoints();

void AnswerPage(Service& service, Call call);
void AnswerChatGlm(Service& service, Call call);
void AnswerModels(Service& service, Call call);
void AnswerModel(Service& service, Call call);
void AnswerCompletions(Service& service, Call call);
void AnswerChatCompletions(Service& service, Call call);
void AnswerEmbeddings(Service& service, Call call);
void AnswerRerank(Service& service, Call call);
void AnswerTokenize(Service& service, Call call);
void AnswerDetokenize(Service& service, Call call);
void AnswerTokenizerInfo(Service& service, Call call);
void AnswerHealth(Service& service, Call call);
void AnswerLoad(Service& service, Call call);
void AnswerMetrics(Service& service, Call call);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_ENDPOINTS_ENDPOINTS_H_
