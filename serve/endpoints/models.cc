// SPDX-License-Identifier: Apache-2.0
// GET /v1/models, and what is told of the tokenizer.
#include "serve/endpoints/endpoints.h"

namespace tessera::serve {

using nlohmann::ordered_json;

void AnswerModels(Service& service, Call call) {
  const ServedModel& served = service.served();
  ordered_json models = ordered_json::array();
  const auto add = [&](int adapter) {
    const int64_t positions = served.model.positions_left(adapter);
    ordered_json model = {{"id", service.NameOf(adapter)},
                          {"object", "model"},
                          {"created", service.started()},
                          {"owned_by", "tessera"}};
    model["max_model_len"] = positions > 0 ? ordered_json(positions) : ordered_json();
    model["parent"] = adapter == kBaseModel ? ordered_json() : ordered_json(served.name);
    model["continues_prompt"] = served.model.encoder_decoder() == nullptr;
    models.push_back(std::move(model));
  };
  add(kBaseModel);
  for (int i = 0; i < std::ssize(served.adapters); ++i) add(i);
  service.Respond(call.exchange, 200, {{"object", "list"}, {"data", std::move(models)}});
}

}  // namespace tessera::serve
