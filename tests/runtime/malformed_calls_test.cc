// SPDX-License-Identifier: Apache-2.0
// Calls that no sane host makes: each is a status, and the library works afterwards as before.
// TESSERA_MALFORMED_CALLS sets how many; the suite makes a few thousand.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "gtest/gtest.h"
#include "runtime/tessera.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

class Caller {
 public:
  explicit Caller(uint64_t seed) : random_(seed) {
    for (const char* type : kSmallModels) {
      live_.push_back(LoadHandle(SmallModelFolder(type)));
      contexts_.push_back(ContextOf(live_.back()));
      tsr_context_options keeps = {};
      keeps.size = sizeof(keeps);
      keeps.kept_texts = 2;
      contexts_.push_back(ContextOf(live_.back(), &keeps));
      archives_.push_back(*ReadFile(SmallModelArchive(type)));
    }
    stale_model_ = LoadHandle(SmallModelFolder("gpt2")).get();
    stale_context_ = ContextOf(live_[0]).get();
    CodeOf(tsr_model_load(nullptr, nullptr, &stale_model_out_));
  }

  // Counts the calls that were accepted, as nonsense sometimes is sense.
  void CallOnce() {
    const int kind = Below(20);
    SCOPED_TRACE(kind);
    switch (kind) {
      case 0:
        return Note(
            tsr_generate(Context(), Ids(), Count(), GenerateOptions(), Callback(), nullptr));
      case 1:
        return Note(
            tsr_generate_text(Context(), Text(), Length(), GenerateOptions(), Callback(), nullptr));
      case 2:
        return CallForward();
      case 3: {
        size_t count = 0;
        return Note(tsr_tokenize(Model(), Text(), Length(), TokenizeOptions(), ids_out_, Capacity(),
                                 Maybe(&count)));
      }
      case 4: {
        size_t count = 0;
        return Note(tsr_detokenize(Model(), Ids(), Count(), DetokenizeOptions(), text_out_,
                                   Capacity(), Maybe(&count)));
      }
      case 5:
        return Note(tsr_embed(Context(), Ids(), Count(), EmbedOptions(), Maybe(floats_out_),
                              Below(3) == 0 ? 24 : static_cast<size_t>(Below(64))));
      case 6: {
        size_t count = 0;
        const auto side = [&] { return static_cast<int64_t>(Below(10)) - 1; };
        return Note(tsr_pixel_values(Model(), Maybe(pixels_), side(), side(), Below(5), floats_out_,
                                     Capacity(), Maybe(&count)));
      }
      case 7:
        return CallLoadMemory();
      case 8: {
        tsr_model_info info;
        std::memset(&info, 0, sizeof(info));
        info.size = Size(sizeof(info));
        return Note(tsr_model_describe(Model(), Maybe(&info)));
      }
      case 9: {
        tsr_context* out = nullptr;
        tsr_status* const status = tsr_context_create(Model(), ContextOptions(), Maybe(&out));
        EXPECT_EQ(CodeOf(tsr_context_release(out)), TSR_OK);
        return Note(status);
      }
      case 10:
        return Note(tsr_context_cancel(Context()));
      case 11:
        tsr_model_label(Model(), Number());
        return;
      case 12:
        return Note(tsr_model_release(StaleModel()));
      case 13:
        return Note(tsr_context_release(StaleContext()));
      case 14: {
        int64_t next = 0;
        return Note(tsr_step(Context(), Ids(), Count(), GenerateOptions(), Maybe(&next),
                             Maybe(doubles_out_), Below(2) == 0 ? 0 : std::size(doubles_out_)));
      }
      case 15: {
        std::vector<tsr_logprob> likeliest(16 * 3);
        const size_t top = Below(20) == 0 ? SIZE_MAX : static_cast<size_t>(Below(4));
        return Note(tsr_logprobs(Context(), Ids(), Count(), top, Maybe(doubles_out_),
                                 Maybe(likeliest.data())));
      }
      case 16: {
        const int64_t* const prompts[] = {Ids(), ids_.data()};
        const size_t lengths[] = {static_cast<size_t>(Below(17)), static_cast<size_t>(Below(17))};
        return Note(tsr_generate_batch(Context(), Maybe(prompts), Maybe(lengths),
                                       Below(20) == 0 ? SIZE_MAX : static_cast<size_t>(Below(3)),
                                       GenerateOptions(), Callback(), nullptr));
      }
      case 17:
        return CallKept();
      case 18: {
        size_t count = 0;
        return Below(2) == 0 ? Note(tsr_chat_prompt(Model(), Text(), Length(), ids_out_, Capacity(),
                                                    Maybe(&count)))
                             : Note(tsr_chat_message(Model(), Text(), Length(), Ids(), Count(),
                                                     text_out_, Capacity(), Maybe(&count)));
      }
      default:
        return Note(tsr_tensors_release(reinterpret_cast<tsr_named_tensor*>(StaleModel())));
    }
  }

  int64_t accepted() const { return accepted_; }
  int64_t refused() const { return refused_; }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  template <typename T>
  T* Maybe(T* pointer) {
    return Below(8) == 0 ? nullptr : pointer;
  }
  void Note(tsr_status* status) {
    const int code = tsr_status_code(status);
    EXPECT_GE(code, TSR_OK);
    EXPECT_LE(code, TSR_BUSY);
    EXPECT_NE(code, TSR_INTERNAL) << tsr_status_message(status);
    EXPECT_EQ(code == TSR_OK, *tsr_status_message(status) == '\0');
    EXPECT_EQ(std::strchr(tsr_status_message(status), '\n'), nullptr);
    ++(code == TSR_OK ? accepted_ : refused_);
    tsr_status_release(status);
  }

  tsr_model* StaleModel() { return Below(2) == 0 ? stale_model_ : nullptr; }
  tsr_context* StaleContext() { return Below(2) == 0 ? stale_context_ : nullptr; }
  tsr_model* Model() {
    if (Below(10) == 0) return StaleModel();
    if (Below(10) == 0) return reinterpret_cast<tsr_model*>(contexts_[0].get());
    return live_[static_cast<size_t>(Below(static_cast<int>(live_.size())))].get();
  }
  tsr_context* Context() {
    if (Below(10) == 0) return StaleContext();
    if (Below(10) == 0) return reinterpret_cast<tsr_context*>(live_[0].get());
    return contexts_[static_cast<size_t>(Below(static_cast<int>(contexts_.size())))].get();
  }

  int64_t Number() {
    static constexpr int64_t kOdd[] = {0,  1,  -1,        2,         3,         5,
                                       24, 52, 53,        256,       257,       -100,
                                       7,  31, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    return kOdd[static_cast<size_t>(Below(std::size(kOdd)))];
  }
  double Real() {
    static constexpr double kOdd[] = {
        0, 1, -1, 0.5, 1e30, 1e-30, HUGE_VAL, std::numeric_limits<double>::quiet_NaN()};
    return kOdd[static_cast<size_t>(Below(std::size(kOdd)))];
  }
  size_t Size(size_t right) {
    static constexpr size_t kOdd[] = {0, 1, 7, 8, 16, 4096, 4097, SIZE_MAX};
    return Below(3) == 0 ? kOdd[static_cast<size_t>(Below(std::size(kOdd)))] : right;
  }
  const int64_t* Ids() {
    ids_.resize(16);
    for (int64_t& id : ids_) id = Below(4) == 0 ? Number() : Below(50);
    return Maybe(ids_.data());
  }
  size_t Count() { return Below(20) == 0 ? SIZE_MAX : static_cast<size_t>(Below(17)); }
  const char* Text() {
    text_.resize(16);
    for (char& c : text_) c = static_cast<char>(Below(4) == 0 ? Below(256) : 'a' + Below(26));
    return Maybe(text_.data());
  }
  size_t Length() { return Below(20) == 0 ? SIZE_MAX : static_cast<size_t>(Below(17)); }
  size_t Capacity() { return static_cast<size_t>(Below(static_cast<int>(std::size(ids_out_)))); }
  tsr_token_callback Callback() {
    static const auto go_on = [](void*, const tsr_token*) { return 0; };
    static const auto stop = [](void*, const tsr_token*) { return 1; };
    return Below(8) == 0 ? nullptr : Below(2) == 0 ? +go_on : +stop;
  }

  // Options are followed by room for the sizes that are read.
  template <typename Options>
  Options* Fresh() {
    std::memset(options_, 0, sizeof(options_));
    auto* const options = reinterpret_cast<Options*>(options_);
    options->size = Size(sizeof(Options));
    return options;
  }
  const tsr_generate_options* GenerateOptions() {
    auto* const options = Fresh<tsr_generate_options>();
    options->max_new_tokens = Below(2) == 0 ? Below(5) : Number();
    if (options->max_new_tokens > 1000) options->max_new_tokens = 3;
    if (Below(2) == 0) {
      options->sampling = Below(5) - 1;
      options->temperature = Real();
      options->top_k = Number();
      options->top_p = Real();
      options->repetition_penalty = Real();
      options->num_beams = Below(6) - 1;
      options->length_penalty = Real();
      options->stop = Below(2) == 0 ? stops_ : nullptr;
      options->stop_count = static_cast<size_t>(Below(4));
      options->seed = static_cast<uint64_t>(Number());
      constexpr const char* kSchemas[] = {nullptr, "", "{", "{\"type\": 3}", "{}"};
      options->json_schema = kSchemas[Below(5)];
      options->logprobs = Number();
    }
    return Maybe(options);
  }
  const tsr_tokenize_options* TokenizeOptions() {
    auto* const options = Fresh<tsr_tokenize_options>();
    options->text_only = Below(3);
    options->special_as_text = Below(3);
    return Maybe(options);
  }
  const tsr_detokenize_options* DetokenizeOptions() {
    auto* const options = Fresh<tsr_detokenize_options>();
    options->skip_special = Below(3);
    return Maybe(options);
  }
  const tsr_embed_options* EmbedOptions() {
    auto* const options = Fresh<tsr_embed_options>();
    options->pooling = Below(6) - 1;
    options->normalise = Below(3);
    return Maybe(options);
  }
  const tsr_context_options* ContextOptions() {
    auto* const options = Fresh<tsr_context_options>();
    options->threads = Below(4) == 0 ? static_cast<int>(Number()) : Below(3);
    options->memory_limit = static_cast<uint64_t>(Number());
    options->kept_texts = Number();
    return Maybe(options);
  }

  void CallForward() {
    static constexpr const char* kNames[] = {
        "input_ids",         "attention_mask", "pixel_values", "labels", "position_ids",
        "decoder_input_ids", "token_type_ids", "nonsense",     ""};
    std::vector<tsr_named_tensor> in(static_cast<size_t>(Below(4)));
    std::vector<std::vector<int64_t>> shapes(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      std::vector<int64_t>& shape = shapes[i];
      shape.resize(static_cast<size_t>(Below(5)));
      for (int64_t& size : shape) size = Below(8) == 0 ? Number() : 1 + Below(4);
      in[i].name = Maybe(kNames[static_cast<size_t>(Below(std::size(kNames)))]);
      in[i].dtype =
          Below(50) == 0 ? -1 - static_cast<int>(Below(1 << 20)) : static_cast<int>(Below(11));
      in[i].rank = Below(10) == 0 ? SIZE_MAX : shape.size();
      in[i].shape = Maybe(shape.data());
      in[i].data = Maybe(bytes_);
      static constexpr size_t kSizes[] = {0, 1, 4, 2, 8, 2, 8, 4, 1, 1};
      const size_t size = kSizes[static_cast<size_t>(in[i].dtype) % std::size(kSizes)];
      size_t elements = 1;
      for (const int64_t n : shape) elements *= static_cast<size_t>(n);
      // What is claimed to be there is there.
      in[i].bytes = elements * size <= sizeof(bytes_) ? elements * size : 8;
      if (Below(10) == 0) in[i].bytes = 5;
    }
    for (unsigned char& byte : bytes_)
      byte = static_cast<unsigned char>(Below(3) == 0 ? Below(256) : 0);
    tsr_forward_options* const options = Fresh<tsr_forward_options>();
    options->all_hidden_states = Below(3);
    tsr_named_tensor* out = nullptr;
    size_t count = 0;
    Note(tsr_forward_with(Context(), Maybe(in.data()), Below(30) == 0 ? SIZE_MAX : in.size(),
                          Maybe(options), Maybe(&out), Maybe(&count)));
    EXPECT_EQ(CodeOf(tsr_tensors_release(out)), TSR_OK);
  }

  // What a context keeps, in which some bytes were changed.
  void CallKept() {
    tsr_context_info info = {};
    info.size = Size(sizeof(info));
    Note(tsr_context_describe(Context(), Maybe(&info)));
    size_t size = 0;
    const auto context =
        contexts_[static_cast<size_t>(Below(static_cast<int>(contexts_.size())))].get();
    Note(tsr_context_save_memory(context, nullptr, 0, &size));
    std::string bytes(size, '\0');
    Note(tsr_context_save_memory(context, bytes.data(), size, Maybe(&size)));
    for (int i = Below(3); i > 0; --i) {
      bytes[random_() % bytes.size()] = static_cast<char>(Below(256));
    }
    if (Below(3) == 0) bytes.resize(random_() % bytes.size());
    Note(tsr_context_restore_memory(Below(2) == 0 ? context : Context(), Maybe(bytes.data()),
                                    bytes.size()));
    tsr_context* fork = nullptr;
    Note(tsr_context_fork(Context(), Maybe(&fork)));
    EXPECT_EQ(CodeOf(tsr_context_release(fork)), TSR_OK);
    if (Below(4) == 0) Note(tsr_context_clear(Context()));
  }

  // A sound archive in which some bytes were changed.
  void CallLoadMemory() {
    std::string archive = archives_[static_cast<size_t>(Below(static_cast<int>(archives_.size())))];
    for (int i = Below(6); i > 0; --i) {
      archive[random_() % archive.size()] = static_cast<char>(Below(256));
    }
    if (Below(3) == 0) archive.resize(random_() % archive.size());
    tsr_load_options* const options = Fresh<tsr_load_options>();
    options->dtype = static_cast<int>(Below(10));
    options->copy_weights = Below(3);
    tsr_model* model = nullptr;
    Note(tsr_model_load_memory(Maybe(archive.data()), archive.size(), Maybe(options),
                               Maybe(&model)));
    EXPECT_EQ(CodeOf(tsr_model_release(model)), TSR_OK);
  }

  std::mt19937_64 random_;
  std::vector<ModelHandle> live_;
  std::vector<ContextHandle> contexts_;
  std::vector<std::string> archives_;
  tsr_model* stale_model_ = nullptr;
  tsr_model* stale_model_out_ = nullptr;
  tsr_context* stale_context_ = nullptr;
  std::vector<int64_t> ids_;
  std::string text_;
  int64_t ids_out_[64] = {};
  char text_out_[64] = {};
  float floats_out_[256] = {};
  double doubles_out_[512] = {};
  uint8_t pixels_[10 * 10 * 4] = {};
  unsigned char bytes_[8192] = {};
  alignas(16) unsigned char options_[8192] = {};
  const char* const stops_[3] = {"a", nullptr, "\xff"};
  int64_t accepted_ = 0;
  int64_t refused_ = 0;
};

TEST(MalformedCallsTest, AreStatuses) {
  const char* const asked = std::getenv("TESSERA_MALFORMED_CALLS");
  const int64_t calls = asked == nullptr ? 6000 : std::atoll(asked);
  Caller caller(20261122);
  for (int64_t i = 0; i < calls && !testing::Test::HasFailure(); ++i) caller.CallOnce();
  RecordProperty("accepted", std::to_string(caller.accepted()));
  EXPECT_GT(caller.accepted(), calls / 50);
  EXPECT_GT(caller.refused(), calls / 10);
}

}  // namespace
}  // namespace tessera
