// SPDX-License-Identifier: Apache-2.0
// What the inference closure does where memory ends: every request of operator new fails in turn,
// alone or with all that follow, and so does every request of tensors. Each time the call says so
// (std::bad_alloc, OutOfMemoryError or kResourceExhausted), nothing ends the process or leaks
// (--config=asan), and the next call gives what it gives elsewhere.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "core/allocator.h"
#include "core/execution_context.h"
#include "core/safetensors.h"
#include "core/thread_pool.h"
#include "data/image/image_processor.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/torch_file/torch_file.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/inference/failing_memory.h"
#include "tests/inference/small_models.h"

namespace tessera {
namespace {

using models::Model;

// Does something and tells, in words, what came of it.
using Attempt = std::function<StatusOr<std::string>()>;

struct Work {
  std::string name;
  std::function<StatusOr<Attempt>()> prepare;  // what needs memory that is not to fail
};

// ---- What is tried -----------------------------------------------------------------------------

constexpr char kText[] = "Hello, it's a naïve 1st  test:\n漢字 don't cut <mask> here.";

// Made once, by the first who asks: a folder as Hugging Face has it.
StatusOr<std::string> FolderOf(const std::string& model_type) {
  const std::string folder = testing::TempDir() + "/failures_" + model_type;
  if (IsDirectory(folder)) return folder;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           models::BuildModel(SmallConfig(model_type), {.seed = 3}));
  const data::ByteTokenizer bytes;
  const bool has_text = model_type == "gpt2";
  TESSERA_RETURN_IF_ERROR(models::SaveModel(*model, folder, has_text ? &bytes : nullptr));
  return folder;
}

StatusOr<std::shared_ptr<Model>> LoadSmall(const std::string& model_type) {
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOf(model_type));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                           models::LoadModel(folder, {.require_weights = true}));
  return std::shared_ptr<Model>(std::move(model));
}

std::string RunModel(const Model& model, const Bundle& inputs) {
  const ExecutionModeScope<&ExecutionContext::records> no_tape(false);
  return FingerprintOf(model.Run(inputs, {}));
}

Work Loading(const std::string& model_type) {
  return {
      "load_" + model_type, [model_type]() -> StatusOr<Attempt> {
        TESSERA_RETURN_IF_ERROR(FolderOf(model_type).status());
        return Attempt([model_type, inputs = SmallInputs(model_type)]() -> StatusOr<std::string> {
          TESSERA_ASSIGN_OR_RETURN(const auto model, LoadSmall(model_type));
          return RunModel(*model, inputs);
        });
      }};
}

Work Computing(const std::string& model_type) {
  return {"forward_" + model_type, [model_type]() -> StatusOr<Attempt> {
            TESSERA_ASSIGN_OR_RETURN(const auto model, LoadSmall(model_type));
            return Attempt([model, inputs = SmallInputs(model_type)]() -> StatusOr<std::string> {
              return RunModel(*model, inputs);
            });
          }};
}

Work Saving(const std::string& model_type) {
  return {"save_" + model_type, [model_type]() -> StatusOr<Attempt> {
            TESSERA_ASSIGN_OR_RETURN(const auto model, LoadSmall(model_type));
            const std::string folder = testing::TempDir() + "/saved_" + model_type;
            return Attempt([model, folder]() -> StatusOr<std::string> {
              TESSERA_RETURN_IF_ERROR(RemoveAll(folder));
              TESSERA_RETURN_IF_ERROR(models::SaveModel(*model, folder));
              return ReadFile(JoinPath(folder, "model.safetensors"));
            });
          }};
}

struct Texts {
  models::GenerationConfig config;
  std::vector<std::vector<int64_t>> prompts = {{5, 8, 40, 41}, {7, 3}};
};

Work Generating(const std::string& name, const std::string& model_type, const Texts& texts) {
  return {"generate_" + name, [=]() -> StatusOr<Attempt> {
            TESSERA_ASSIGN_OR_RETURN(const auto model, LoadSmall(model_type));
            return Attempt([=]() -> StatusOr<std::string> {
              const data::ByteTokenizer tokenizer;
              std::string told;
              models::GenerateOptions options;
              options.tokenizer = &tokenizer;
              options.on_token = [&](int64_t row, int64_t id, std::string_view text) {
                told += Concat(row, ":", id, " ", text, " ");
                return OkStatus();
              };
              TESSERA_ASSIGN_OR_RETURN(const auto results, models::Generate(*model, texts.prompts,
                                                                            texts.config, options));
              for (const models::GenerationResult& result : results) told += "\n" + result.text;
              return told;
            });
          }};
}

std::string Tokenized(const data::Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.Encode(kText);
  std::string text;
  for (const int32_t id : ids) text += Concat(id, " ");
  return text + tokenizer.Decode(ids);
}

Work LoadingTokenizer(const std::string& name, const std::string& folder) {
  return {"load_tokenizer_" + name, [folder]() -> StatusOr<Attempt> {
            return Attempt([folder]() -> StatusOr<std::string> {
              TESSERA_ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(folder));
              return Tokenized(*tokenizer);
            });
          }};
}

Work Tokenizing(const std::string& name, const std::string& folder) {
  return {
      "tokenize_" + name, [folder]() -> StatusOr<Attempt> {
        TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<data::Tokenizer> tokenizer,
                                 data::LoadTokenizer(folder));
        return Attempt([tokenizer]() -> StatusOr<std::string> { return Tokenized(*tokenizer); });
      }};
}

// vocab.json and merges.txt, as older folders of GPT-2 have them.
Work LoadingMerges() {
  const std::string folder = testing::TempDir() + "/failures_merges";
  Work work = LoadingTokenizer("merges", folder);
  const auto load = work.prepare;
  work.prepare = [folder, load]() -> StatusOr<Attempt> {
    TESSERA_ASSIGN_OR_RETURN(const auto tokenizer,
                             data::LoadTokenizer("data/tokenizer/testdata/transformers5/gpt2"));
    TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
    TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(folder, "tokenizer.json")));
    return load();
  };
  return work;
}

Work PreparingPictures() {
  return {"picture", []() -> StatusOr<Attempt> {
            const std::string folder = testing::TempDir() + "/failures_picture";
            TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
            const data::ImageProcessorConfig config{.height = 8, .width = 8};
            TESSERA_RETURN_IF_ERROR(WriteFileAtomically(
                JoinPath(folder, "preprocessor_config.json"), config.ToJson().dump()));
            return Attempt([folder]() -> StatusOr<std::string> {
              TESSERA_ASSIGN_OR_RETURN(const data::ImageProcessor processor,
                                       data::ImageProcessor::Load(folder, 3));
              const data::Image image{.height = 11,
                                      .width = 12,
                                      .channels = 3,
                                      .pixels = std::vector<uint8_t>(11 * 12 * 3, 77)};
              std::vector<float> pixels(static_cast<size_t>(processor.OutputSize()));
              processor.Apply(image, pixels.data());
              return Concat(pixels.front(), " ", pixels.back());
            });
          }};
}

Work ReadingTorchFile(const std::string& name) {
  return {"torch_file_" + name.substr(0, name.find('.')), [name]() -> StatusOr<Attempt> {
            return Attempt(
                [path = "models/hub/torch_file/testdata/" + name]() -> StatusOr<std::string> {
                  TESSERA_ASSIGN_OR_RETURN(const auto file, models::TorchFile::Open(path));
                  std::string told;
                  for (const models::TorchFile::Entry& entry : file.entries()) {
                    std::vector<std::byte> made;
                    const StatusOr<TensorView> view = file.Get(entry.name, &made);
                    if (!view.ok() && view.status().code() == StatusCode::kResourceExhausted) {
                      return view.status();
                    }
                    told += Concat(entry.name, " ", view.ok() ? view->nbytes : -1, "\n");
                  }
                  return told;
                });
          }};
}

Work ReadingSafetensors() {
  return {
      "safetensors", []() -> StatusOr<Attempt> {
        TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOf("t5"));
        return Attempt([path = JoinPath(folder, "model.safetensors")]() -> StatusOr<std::string> {
          TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
          std::string told;
          for (const SafetensorsFile::Entry& entry : file.entries()) {
            TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name));
            told += Concat(entry.name, " ", view.nbytes, "\n");
          }
          return told;
        });
      }};
}

std::vector<Work> Works() {
  std::vector<Work> works;
  for (const char* model_type : kSmallModels) {
    works.push_back(Loading(model_type));
    works.push_back(Computing(model_type));
  }
  works.push_back(Saving("gpt2"));
  works.push_back(Generating("greedy", "gpt2", {{.max_new_tokens = 4, .stop_strings = {"zz"}}}));
  works.push_back(Generating(
      "sampled", "gpt2", {{.max_new_tokens = 4, .do_sample = true, .top_k = 20, .top_p = 0.9}}));
  works.push_back(Generating("beams", "gpt2", {{.max_new_tokens = 3, .num_beams = 2}}));
  works.push_back(Generating("encoder_decoder", "t5", {{.max_new_tokens = 3}}));
  const std::string testdata = "data/tokenizer/testdata/";
  for (const auto& [name, folder] : std::vector<std::pair<std::string, std::string>>{
           {"word_piece", "word_piece/uncased"},
           {"sentence_piece_unigram", "sentence_piece/t5"},
           {"sentence_piece_merges", "sentence_piece/llama"},
           {"pipeline_bytes", "tokenizer_json/gpt"},
           {"pipeline_words", "tokenizer_json/bert"},
           {"pipeline_unigram", "tokenizer_json/t5"},
           {"transformers5", "transformers5/gpt2"}}) {
    works.push_back(LoadingTokenizer(name, testdata + folder));
    works.push_back(Tokenizing(name, testdata + folder));
  }
  works.push_back(LoadingMerges());
  works.push_back(PreparingPictures());
  for (const char* name : {"archive.bin", "legacy.bin", "training.pt"}) {
    works.push_back(ReadingTorchFile(name));
  }
  works.push_back(ReadingSafetensors());
  return works;
}

// ---- How it is tried ---------------------------------------------------------------------------

struct Outcome {
  bool no_memory = false;
  int64_t requests = 0;
  std::string text;  // what came of it, or an error that is none of memory
};

// Disarms before it needs memory itself.
Outcome OutcomeOf(const Attempt& attempt) {
  Outcome outcome;
  try {
    const StatusOr<std::string> result = attempt();
    outcome.requests = FailingMemory::Disarm();
    outcome.no_memory = result.status().code() == StatusCode::kResourceExhausted;
    outcome.text = result.ok() ? *result : "status: " + Message(result.status());
  } catch (const std::bad_alloc&) {
    outcome.requests = FailingMemory::Disarm();
    outcome.no_memory = true;
  } catch (const OutOfMemoryError&) {
    outcome.requests = FailingMemory::Disarm();
    outcome.no_memory = true;
  } catch (const std::exception& error) {
    outcome.requests = FailingMemory::Disarm();
    outcome.text = std::string("exception: ") + error.what();
  }
  return outcome;
}

// What another process gets, in which nothing ever failed.
StatusOr<std::string> TextElsewhere(const Work& work) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return Internal("no pipe");
  const pid_t child = fork();
  if (child < 0) return Internal("no process");
  if (child == 0) {
    const StatusOr<Attempt> attempt = work.prepare();
    const StatusOr<std::string> text = attempt.ok() ? (*attempt)() : attempt.status();
    const std::string told = text.ok() ? "+" + *text : "-" + Message(text.status());
    for (size_t at = 0; at < told.size();) {
      const ssize_t written = write(pipe_ends[1], told.data() + at, told.size() - at);
      if (written <= 0) break;
      at += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string told;
  char part[4096];
  for (ssize_t got = 0; (got = read(pipe_ends[0], part, sizeof(part))) > 0;) told.append(part, got);
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  if (told.empty() || told[0] == '-') return Internal(work.name, " fails by itself: ", told);
  return told.substr(1);
}

class AllocationFailureTest : public testing::TestWithParam<Work> {
 protected:
  void SetUp() override {
    ThreadPool::OfProcess().SetNumThreads(1);  // requests in one order
    const StatusOr<std::string> text = TextElsewhere(GetParam());
    ASSERT_TRUE(text.ok()) << Message(text.status());
    expected_ = *text;
    StatusOr<Attempt> attempt = GetParam().prepare();
    ASSERT_TRUE(attempt.ok()) << Message(attempt.status());
    attempt_ = *std::move(attempt);
  }
  void TearDown() override { ThreadPool::OfProcess().SetNumThreads(AvailableCores()); }

  void FailEach(bool all_after, int64_t step) {
    for (int64_t n = 1; !HasFailure(); n += step) {
      SCOPED_TRACE(Concat("request ", n));
      FailingMemory::Arm({.first = n, .all_after = all_after});
      const Outcome outcome = OutcomeOf(attempt_);
      // One failure may be made good: by another try, or by a slower way.
      if (!outcome.no_memory) {
        EXPECT_EQ(outcome.text, expected_);
      }
      if (outcome.requests < n) {
        EXPECT_FALSE(outcome.no_memory);
        EXPECT_GT(n, 1);
        return;
      }
      if (all_after) {
        EXPECT_TRUE(outcome.no_memory);
      }
      // What was left in a wrong state stays so: not every failure needs a look behind it.
      if (n % 8 == 0) {
        EXPECT_EQ(OutcomeOf(attempt_).text, expected_) << "afterwards";
      }
    }
  }

  // Blocks of memory that are in use after a run in which nothing fails.
  int64_t BlocksAfterARun() {
    EXPECT_EQ(OutcomeOf(attempt_).text, expected_);
    Allocator::For(Device::Cpu()).ReleaseCached();
    return FailingMemory::Blocks();
  }

  std::string expected_;
  Attempt attempt_;
};

// At first also of what is made once per process; after that nothing stays behind.
TEST_P(AllocationFailureTest, OneRequestFails) {
  FailEach(/*all_after=*/false, /*step=*/1);
  const int64_t blocks = BlocksAfterARun();
  FailEach(/*all_after=*/false, /*step=*/1);
  EXPECT_EQ(BlocksAfterARun(), blocks);
}

TEST_P(AllocationFailureTest, MemoryIsUsedUp) {
  const int64_t blocks = BlocksAfterARun();
  FailEach(/*all_after=*/true, /*step=*/1);
  EXPECT_EQ(BlocksAfterARun(), blocks);
}

// Requests of several threads come in no order: any of them fails.
TEST_P(AllocationFailureTest, OnSeveralThreads) {
  ThreadPool::OfProcess().SetNumThreads(3);
  FailEach(/*all_after=*/false, /*step=*/7);
  FailEach(/*all_after=*/true, /*step=*/11);
}

// Tensors alone find no memory.
TEST_P(AllocationFailureTest, NoTensorsCanBeMade) {
  static int64_t blocks_left;
  for (int64_t n = 0; !HasFailure(); ++n) {
    SCOPED_TRACE(Concat("block ", n));
    blocks_left = n;
    const auto allocator = Allocator::MakeCpu(
        "scarce allocator", {.obtain = [](size_t bytes) -> void* {
                               return --blocks_left < 0 ? nullptr : std::aligned_alloc(64, bytes);
                             },
                             .give_back = std::free});
    ExecutionContext context;
    context.cpu_allocator = allocator.get();
    const ExecutionScope scope(context);
    const Outcome outcome = OutcomeOf(attempt_);
    EXPECT_EQ(allocator->stats().current_bytes, 0);
    if (blocks_left < 0) {
      EXPECT_TRUE(outcome.no_memory) << outcome.text;
    } else {
      EXPECT_EQ(outcome.text, expected_);
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Works, AllocationFailureTest, testing::ValuesIn(Works()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
