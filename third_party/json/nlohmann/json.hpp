// SPDX-License-Identifier: Apache-2.0
// nlohmann/json, where two of its functions that may not throw ask for no memory: without any they
// would end the process.
//
// The destructor lists the parts of an array or object on the heap, so that deep ones do not exhaust
// the stack. What is parsed here has few levels (base/json_text.h refuses more), so that
// destructors within destructors are fine. And `value == "text"` makes a value of the text first.
//
// What its two kinds of value are made of is compiled once (json.cc): that was a fifth of the compile
// time of a source that uses them.
#ifndef TESSERA_THIRD_PARTY_JSON_NLOHMANN_JSON_HPP_
#define TESSERA_THIRD_PARTY_JSON_NLOHMANN_JSON_HPP_

#if defined(TESSERA_SHORT_JSON_ERRORS)
// Of libraries for other programs: what is thrown where a value is of another kind than the code
// takes it for says just that. The texts of nlohmann's own exceptions are made where they are thrown.
namespace tessera {
[[noreturn]] void ThrowJsonError();
}
#define JSON_THROW_USER(exception) ::tessera::ThrowJsonError()
#endif

// Paths go into JSON as texts: a source that includes this does not read <filesystem>, too.
#define JSON_HAS_FILESYSTEM 0

#include_next <nlohmann/json.hpp>

#define TESSERA_WITHOUT_MEMORY_(Json)                                    \
  template <>                                                            \
  inline void Json::json_value::destroy(value_t type) {                  \
    if (type == value_t::object) delete object;                          \
    if (type == value_t::array) delete array;                            \
    if (type == value_t::string) delete string;                          \
    if (type == value_t::binary) delete binary;                          \
  }                                                                      \
  inline bool operator==(const Json& value, const char* text) noexcept { \
    const auto* const string = value.get_ptr<const Json::string_t*>();   \
    return string != nullptr && *string == text;                         \
  }
namespace nlohmann {
TESSERA_WITHOUT_MEMORY_(json)
TESSERA_WITHOUT_MEMORY_(ordered_json)

extern template class basic_json<>;
extern template class basic_json<ordered_map>;
extern template class detail::serializer<json>;
extern template class detail::serializer<ordered_json>;
}  // namespace nlohmann
#undef TESSERA_WITHOUT_MEMORY_

#endif  // TESSERA_THIRD_PARTY_JSON_NLOHMANN_JSON_HPP_
