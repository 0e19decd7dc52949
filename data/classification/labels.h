// SPDX-License-Identifier: Apache-2.0
// The labels of a table's rows: names, numbers, or several yes-or-no answers.
//
//   LabelReader reader(/*num_fields=*/1);
//   TESSERA_RETURN_IF_ERROR(reader.Add({"positive"}, "train.tsv:2"));
//   LabelColumn labels = reader.Finish();       // kind kNames, names {"negative", "positive"}
//
// One field whose values are all numbers and not all whole ones is a number (a score to be
// predicted); any other field is a name. Several fields are answers: each value is 0, 1, false or
// true. Rows without a field have no labels. Blanks around a value mean nothing, and whole numbers
// are equal however they are spelt: "1", " 1" and "1.0" are one label.
#ifndef TESSERA_DATA_CLASSIFICATION_LABELS_H_
#define TESSERA_DATA_CLASSIFICATION_LABELS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

enum class LabelKind { kNames, kNumber, kAnswers, kNone };

struct LabelColumn {
  LabelKind kind = LabelKind::kNames;
  // Of kNames: sorted, whole numbers by their value. Of kAnswers: empty.
  std::vector<std::string> names;
  std::vector<std::string> first_seen;  // where each name is first: path:line
  int64_t num_fields = 1;
  // Row by row: the index of the name; the number; the answers (num_fields of each row).
  std::vector<double> values;

  nlohmann::json ToJson() const;
  static StatusOr<LabelColumn> FromJson(const nlohmann::json& json);
};

class LabelReader {
 public:
  explicit LabelReader(int64_t num_fields) : num_fields_(num_fields) {}
  // InvalidArgument for an answer that is none, an empty label.
  Status Add(std::span<const std::string> fields, const std::string& where);
  LabelColumn Finish() &&;

 private:
  const int64_t num_fields_;
  std::map<std::string, int64_t> index_;  // of a name, in order of appearance
  std::vector<std::string> first_seen_;
  bool all_numbers_ = true;
  bool all_whole_ = true;
  std::vector<double> values_;   // of one field: the index of appearance
  std::vector<double> numbers_;  // of one field, while all are numbers
};

// What a label is called: "1" for "1.0", " 1 " and "1e0".
std::string LabelName(std::string_view text);

// Gives the values of a column of names the indices that the names have in `names` (a model's, or
// the training data's). InvalidArgument for a name that is not there, with where it stands.
Status UseNames(const std::vector<std::string>& names, LabelColumn* column);

// Makes numbers of a column of names (0, 1, 2 may be scores as well as names). InvalidArgument for
// a name that is none, with where it stands.
Status UseNumbers(LabelColumn* column);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_LABELS_H_
