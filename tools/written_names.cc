// SPDX-License-Identifier: Apache-2.0
#include "tools/written_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace tessera::tools {
namespace {

bool IsNamePart(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; }

std::string Dashed(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Whether `rest`, what follows a word at a message's or a part's begin, makes the word a key's
// name.
bool FollowsKey(std::string_view rest) {
  constexpr std::string_view kNext[] = {": ", " '", " is ", " lists ", " must "};
  return std::ranges::any_of(kNext, [&](std::string_view next) { return rest.starts_with(next); });
}

}  // namespace

void WrittenNames::AddFlag(const std::string& written) { flags_[Dashed(written)] = written; }

void WrittenNames::AddKey(const std::string& key, const std::string& written) {
  if (key == written) {
    keys_.erase(key);
  } else {
    keys_[key] = written;
  }
}

std::string WrittenNames::FlagOf(std::string_view name) const {
  const std::string flag = "--" + Dashed(name);
  const auto found = flags_.find(flag);
  return found == flags_.end() ? flag : found->second;
}

Status WrittenNames::In(const Status& failure) const {
  if (failure.ok()) return failure;
  const std::string text = InWords(failure.message());
  // The failure itself has marks (train/ranks/agreement.h).
  return text == failure.message() ? failure : Failure(failure.code(), text);
}

std::string WrittenNames::InWords(std::string_view message) const {
  // The user's name of a flag or a key; "": it is as it is.
  const auto other_name = [&](std::string_view name) -> std::string {
    const bool is_flag = name.starts_with("--");
    if (is_flag) {
      const auto flag = flags_.find(Dashed(name));
      if (flag != flags_.end()) return flag->second;
      name.remove_prefix(2);
    }
    std::string key(name);
    if (is_flag) std::replace(key.begin(), key.end(), '-', '_');
    const auto found = keys_.find(key);
    if (found == keys_.end() || message.find(found->second) != message.npos) return "";
    return found->second;
  };
  std::string text;
  bool quoted = false;
  for (size_t at = 0; at < message.size();) {
    const char before = at == 0 ? ' ' : message[at - 1];
    if (message[at] == '\'') {  // not an apostrophe
      const char after = at + 1 < message.size() ? message[at + 1] : ' ';
      if (!absl::ascii_isalnum(before) || !absl::ascii_isalnum(after)) {
        quoted = quoted ? absl::ascii_isalnum(after) : !absl::ascii_isalnum(before);
      }
    }
    if (!IsNamePart(message[at])) {
      text += message[at++];
      continue;
    }
    size_t end = at;
    while (end < message.size() && IsNamePart(message[end])) ++end;
    const std::string_view name = message.substr(at, end - at);
    const std::string_view rest = message.substr(end);
    const bool is_path = before == '/' || before == '.' || rest.starts_with('/') ||
                         (rest.size() > 1 && rest[0] == '.' && IsNamePart(rest[1]));
    const bool begins = at == 0 || message.substr(0, at).ends_with(": ");
    const bool is_name =
        name.starts_with("--") ||
        (!quoted && !is_path && (name.find('_') != name.npos || (begins && FollowsKey(rest))));
    const std::string other = is_name ? other_name(name) : "";
    text += other.empty() ? std::string(name) : other;
    at = end;
  }
  return text;
}

}  // namespace tessera::tools
