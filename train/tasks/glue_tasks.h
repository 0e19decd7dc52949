// SPDX-License-Identifier: Apache-2.0
// Which columns of a table are texts and labels, by GLUE's names (Wang et al. 2019) and by the
// rules of Hugging Face's run_glue.
#ifndef TESSERA_TRAIN_TASKS_GLUE_TASKS_H_
#define TESSERA_TRAIN_TASKS_GLUE_TASKS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "train/task.h"
#include "train/tasks/label_setup.h"

namespace tessera::train {

struct GlueTask {
  std::string name;  // "mrpc"
  // Its columns, as the datasets library and as the published files call them; the second text is
  // empty where there is one.
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::string> labels;
  bool numbers = false;  // labels are scores
  // Of our metrics those that the task is judged by, with their names there.
  std::vector<std::pair<std::string, std::string>> metrics;
};

// "cola", "mnli", ...
std::vector<std::string> GlueTaskNames();
// nullptr for an empty name.
const GlueTask* FindGlueTask(const std::string& name);

bool HasColumn(const std::vector<std::string>& columns, const std::string& name);

// Sets the columns that `keys` leaves open. Texts: the task's; without one, a pair that is usual
// (`sentence1` and `sentence2`, ...), else the one or two columns that are neither labels nor an
// index. InvalidArgument, with the columns, where that does not say which.
Status ChooseColumns(const std::string& path, const GlueTask* task, TableOptions* keys);

// Those of `metrics` that the task is judged by, under its names.
std::shared_ptr<const EvaluationMetrics> MetricsOf(
    const GlueTask& task, std::shared_ptr<const EvaluationMetrics> metrics);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_GLUE_TASKS_H_
