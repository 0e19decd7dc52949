// SPDX-License-Identifier: Apache-2.0
// GET /v1/models, and one of them by its name.
#include <charconv>
#include <string>
#include <string_view>

#include "serve/endpoints/endpoints.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

ordered_json ModelJson(const Service& service, int adapter) {
  const ServedModel& served = service.served();
  const int64_t positions = served.model.positions_left(adapter);
  ordered_json model = {{"id", service.NameOf(adapter)},
                        {"object", "model"},
                        {"created", service.started()},
                        {"owned_by", "tessera"}};
  model["max_model_len"] = positions > 0 ? ordered_json(positions) : ordered_json();
  model["parent"] = adapter == kBaseModel ? ordered_json() : ordered_json(served.name);
  model["continues_prompt"] = served.model.encoder_decoder() == nullptr;
  return model;
}

// "%2F" as "/": names may have any characters, and clients write them so (RFC 3986, 2.1).
std::string WithoutPercents(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool escaped = text[i] == '%' && error == std::errc() && end == digits.data() + 2;
    plain += escaped ? static_cast<char>(byte) : text[i];
    if (escaped) i += 2;
  }
  return plain;
}

}  // namespace

void AnswerModels(Service& service, Call call) {
  ordered_json models = {ModelJson(service, kBaseModel)};
  for (int i = 0; i < std::ssize(service.served().adapters); ++i) {
    models.push_back(ModelJson(service, i));
  }
  service.Respond(call.exchange, 200, {{"object", "list"}, {"data", std::move(models)}});
}

void AnswerModel(Service& service, Call call) {
  const std::string_view path = call.exchange.request().path;
  const std::string name = WithoutPercents(path.substr(std::string_view("/v1/models/").size()));
  const StatusOr<int> adapter = service.AdapterOf(name);
  if (!adapter.ok()) return service.Refuse(call.exchange, adapter.status(), "model");
  service.Respond(call.exchange, 200, ModelJson(service, *adapter));
}

}  // namespace tessera::serve
