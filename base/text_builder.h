// SPDX-License-Identifier: Apache-2.0
// Text made of parts, for messages: what streams do, without their locales and half a megabyte.
//
//   TextBuilder text;
//   text << "a tensor of " << shape << " takes " << bytes << " bytes";
//   std::string line = std::move(text).Take();
//
// Mostly by way of Concat (base/status.h). Numbers read as they do in streams: six digits of
// floating ones, whatever the process's locale. A type of this project says its text once,
//
//   TextBuilder& operator<<(TextBuilder& text, const Shape& shape);
//
// and has it in streams as well, for tests and for programs.
#ifndef TESSERA_BASE_TEXT_BUILDER_H_
#define TESSERA_BASE_TEXT_BUILDER_H_

#include <concepts>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tessera {

template <typename T>
inline constexpr bool kIsString =
    std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view> ||
    std::is_same_v<std::decay_t<T>, const char*> || std::is_same_v<std::decay_t<T>, char*>;
template <typename T>
concept StringLike = kIsString<T>;
template <typename T>
concept HasNoTextHere = !kIsString<T> && !std::is_arithmetic_v<T>;

// Takes these types, and those that declare the operator above, as they are; converts nothing to
// them, for there are types that convert to all.
class TextBuilder {
 public:
  template <typename T>
  requires StringLike<T> TextBuilder& operator<<(const T& part) { return Append(part); }
  template <std::integral T>
  TextBuilder& operator<<(T part) {
    if constexpr (sizeof(T) == 1 && !std::same_as<T, bool>) {
      text_.push_back(static_cast<char>(part));
      return *this;
    } else if constexpr (std::signed_integral<T>) {
      return AppendSigned(part);
    } else {
      return AppendUnsigned(part);
    }
  }
  template <std::floating_point T>
  TextBuilder& operator<<(T part) {
    return AppendDouble(static_cast<double>(part));
  }
  template <typename T>
  requires HasNoTextHere<T> TextBuilder& operator<<(const T&) = delete;

  std::string Take() && { return std::move(text_); }

 private:
  TextBuilder& Append(std::string_view part) {
    text_.append(part);
    return *this;
  }
  TextBuilder& AppendSigned(long long part);  // NOLINT(google-runtime-int): the largest there is
  TextBuilder& AppendUnsigned(unsigned long long part);  // NOLINT(google-runtime-int)
  TextBuilder& AppendDouble(double part);

  std::string text_;
};

// Types of this project that have a text of their own.
template <typename T>
concept HasText = HasNoTextHere<T> && requires(TextBuilder& text, const T& t) {
  text << t;
};

// Streams take those, too.
template <std::derived_from<std::ostream> Out, typename T>
requires HasText<T> Out& operator<<(Out& out, const T& t) {
  TextBuilder text;
  text << t;
  out << std::move(text).Take();
  return out;
}

}  // namespace tessera

#endif  // TESSERA_BASE_TEXT_BUILDER_H_
