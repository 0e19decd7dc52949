// SPDX-License-Identifier: Apache-2.0
// What a tsr_trainer is.
#ifndef TESSERA_RUNTIME_TRAINER_H_
#define TESSERA_RUNTIME_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mounted_folder.h"
#include "core/allocator.h"
#include "core/thread_pool.h"
#include "data/tokenizer/tokenizer.h"
#include "models/hub/adapter.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera_training.h"
#include "train/engine/engine.h"
#include "train/engine/step_loop.h"

struct tsr_trainer {
  // Before what lies in it.
  std::unique_ptr<tessera::ThreadPool> threads;  // nullptr: the process's
  std::unique_ptr<tessera::Allocator> memory;    // nullptr: the process's
  std::atomic<bool> cancelled = false;

  // Of a model that is a file: what it is read as.
  std::optional<tessera::MountedFolder> mounted;
  std::unique_ptr<tessera::models::Model> model;
  // What trains instead of the model's weights; of `model`.
  std::optional<tessera::models::AdapterConfig> adapter_config;
  tessera::models::AttachedAdapter adapter;
  std::unique_ptr<const tessera::data::Tokenizer> tokenizer;  // nullptr: it has none
  nlohmann::json generation_config;                           // the folder's; null: it has none
  std::vector<std::pair<std::string, std::string>> files;     // of the folder, by name
  std::unique_ptr<tessera::train::Engine> engine;
  int64_t parameters = 0;
  std::string config;  // for tsr_train_describe

  std::optional<tessera::train::StepLoop> loop;  // over the engine
  bool scales_loss = false;
  double learning_rate = 0;
};

#endif  // TESSERA_RUNTIME_TRAINER_H_
