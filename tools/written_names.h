// SPDX-License-Identifier: Apache-2.0
// How the user wrote the names of flags and keys, for messages: code below the command line knows
// `batch_size` alone, however it was given.
//
//   names.AddFlag("--train_file");
//   names.AddKey("data", "--train_file");
//   names.In(NotFound("data: x.txt: no such file"))   // "--train_file: x.txt: no such file"
#ifndef TESSERA_TOOLS_WRITTEN_NAMES_H_
#define TESSERA_TOOLS_WRITTEN_NAMES_H_

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::tools {

class WrittenNames {
 public:
  // A flag as it stands on the command line, with dashes or underscores.
  void AddFlag(const std::string& written);
  // What gave the key: a flag, or a name in a file. The last one counts.
  void AddKey(const std::string& key, const std::string& written);
  // "--train_file" of the name train_file, where it was a flag.
  std::string FlagOf(std::string_view name) const;

  // The failure in the user's words. A flag's name is replaced wherever it stands, a key's outside
  // of quotes; a key that is an English word (`data`) only where it begins the message or stands
  // before a colon, a quote, or a verb. A name that the message has already is not repeated.
  Status In(const Status& failure) const;

 private:
  std::string InWords(std::string_view message) const;

  std::map<std::string, std::string, std::less<>> flags_;  // by the form with dashes
  std::map<std::string, std::string, std::less<>> keys_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_WRITTEN_NAMES_H_
