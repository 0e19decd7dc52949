// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#if defined(TESSERA_SHORT_JSON_ERRORS)
namespace tessera {
namespace {

struct JsonError : nlohmann::json::exception {
  JsonError() : exception(0, "a JSON value is missing, or of another kind") {}
};

}  // namespace

void ThrowJsonError() { throw JsonError(); }

}  // namespace tessera
#endif

namespace nlohmann {
template class basic_json<>;
template class basic_json<ordered_map>;
template class detail::serializer<json>;
template class detail::serializer<ordered_json>;
}  // namespace nlohmann
