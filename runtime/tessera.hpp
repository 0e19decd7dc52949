// SPDX-License-Identifier: Apache-2.0
// tessera.h for C++17: handles that release themselves, failures as exceptions.
//
//   const tsr::Model model("gpt2-folder");
//   tsr::Context context(model);
//   context.Generate("Once", {}, [](const tsr_token& token) {
//     std::cout.write(token.text, token.length);
//     return true;
//   });
//
// Whatever fails throws tsr::Failure, in this program: nothing is thrown across the library's
// border. Lengths, lifetimes, threads and meanings are those of tessera.h. Header only.
#ifndef TESSERA_HPP_
#define TESSERA_HPP_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera.h"

namespace tsr {

// A status that is no success. what() is its message.
class Failure : public std::runtime_error {
 public:
  Failure(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }  // TSR_NOT_FOUND, ...

 private:
  int code_;
};

// Throws what a function of tessera.h returned, unless it is a success.
inline void Check(tsr_status* status) {
  if (status == nullptr) return;
  const std::unique_ptr<tsr_status, void (*)(tsr_status*)> owner(status, tsr_status_release);
  throw Failure(tsr_status_code(status), tsr_status_message(status));
}

// Options with their size set; the other members are 0, their defaults. Every call here sets the
// size where it is 0, so that {} are the defaults, too.
template <typename T>
T Options() {
  T options = {};
  options.size = sizeof(options);
  return options;
}

namespace internal {
// What a function writes into room for `guess` elements, or, where that does not do, for as many as
// it says: `call(data, capacity, &count)`.
template <typename Container, typename Call>
Container Filled(std::size_t guess, const Call& call) {
  Container all(guess, typename Container::value_type());
  std::size_t count = 0;
  tsr_status* status = call(all.data(), all.size(), &count);
  if (tsr_status_code(status) == TSR_OUT_OF_RANGE || count > all.size()) {
    tsr_status_release(status);
    all.resize(count);
    status = call(all.data(), all.size(), &count);
  }
  Check(status);
  all.resize(count);
  return all;
}

template <typename T>
class Sized {
 public:
  explicit Sized(const T& options) : options_(options) {
    if (options_.size == 0) options_.size = sizeof(options_);
  }
  const T* get() const { return &options_; }

 private:
  T options_;
};
}  // namespace internal

// Before the first handle, or when all are released.
inline void Configure(const tsr_configuration& configuration) {
  Check(tsr_configure(internal::Sized(configuration).get()));
}
// Of the process's tensors.
inline tsr_memory_info Memory() {
  auto info = Options<tsr_memory_info>();
  Check(tsr_memory(&info));
  return info;
}

// Options of a generation with settings by name, which they own:
//
//   tsr::GenerateOptions options;
//   options->max_new_tokens = 20;
//   options.Set("logit_bias", "15:-1").Set("temperature", "0");
//   context.Generate("Once", options, on_token);
class GenerateOptions {
 public:
  GenerateOptions() : options_(Options<tsr_generate_options>()) {}
  GenerateOptions(const GenerateOptions&) = delete;
  GenerateOptions& operator=(const GenerateOptions&) = delete;
  ~GenerateOptions() { tsr_generate_options_clear(&options_); }

  GenerateOptions& Set(const std::string& name, const std::string& value) {
    Check(tsr_generate_options_set(&options_, name.c_str(), value.c_str()));
    return *this;
  }
  tsr_generate_options* operator->() { return &options_; }
  operator const tsr_generate_options&() const { return options_; }

 private:
  tsr_generate_options options_;
};

// Read-only; any number of contexts on any threads use it, and none of them outlives it.
class Model {
 public:
  // A folder, a tar file of one, or a GGUF file.
  explicit Model(const std::string& path,
                 const tsr_load_options& options = Options<tsr_load_options>()) {
    Check(tsr_model_load(path.c_str(), internal::Sized(options).get(), &handle_));
  }
  // A tar or GGUF file in memory, which outlives the model.
  Model(const void* data, std::size_t size,
        const tsr_load_options& options = Options<tsr_load_options>()) {
    Check(tsr_model_load_memory(data, size, internal::Sized(options).get(), &handle_));
  }
  Model(Model&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Model() { tsr_status_release(tsr_model_release(handle_)); }

  tsr_model_info Describe() const {
    auto info = Options<tsr_model_info>();
    Check(tsr_model_describe(handle_, &info));
    return info;
  }
  // "" beyond the last.
  std::string_view Label(std::int64_t label) const {
    const char* const name = tsr_model_label(handle_, label);
    return name == nullptr ? std::string_view() : std::string_view(name);
  }

  std::vector<std::int64_t> Tokenize(
      std::string_view text,
      const tsr_tokenize_options& options = Options<tsr_tokenize_options>()) const {
    const internal::Sized sized(options);
    return internal::Filled<std::vector<std::int64_t>>(
        text.size() + 16, [&](std::int64_t* ids, std::size_t capacity, std::size_t* count) {
          return tsr_tokenize(handle_, text.data(), text.size(), sized.get(), ids, capacity, count);
        });
  }
  std::string Detokenize(
      const std::vector<std::int64_t>& ids,
      const tsr_detokenize_options& options = Options<tsr_detokenize_options>()) const {
    const internal::Sized sized(options);
    return internal::Filled<std::string>(0, [&](char* text, std::size_t capacity,
                                                std::size_t* length) {
      return tsr_detokenize(handle_, ids.data(), ids.size(), sized.get(), text, capacity, length);
    });
  }
  // [height][width][channels] to [channels][image_height][image_width].
  std::vector<float> PixelValues(const std::uint8_t* pixels, std::int64_t height,
                                 std::int64_t width, std::int64_t channels) const {
    return internal::Filled<std::vector<float>>(0, [&](float* values, std::size_t capacity,
                                                       std::size_t* count) {
      return tsr_pixel_values(handle_, pixels, height, width, channels, values, capacity, count);
    });
  }
  // The prompt that Context::Chat makes of a conversation.
  std::vector<std::int64_t> ChatPrompt(std::string_view messages) const {
    return internal::Filled<std::vector<std::int64_t>>(
        0, [&](std::int64_t* ids, std::size_t capacity, std::size_t* count) {
          return tsr_chat_prompt(handle_, messages.data(), messages.size(), ids, capacity, count);
        });
  }
  // The message, as JSON, that an answer to a conversation is.
  std::string ChatMessage(std::string_view messages, const std::vector<std::int64_t>& ids) const {
    return internal::Filled<std::string>(
        0, [&](char* json, std::size_t capacity, std::size_t* length) {
          return tsr_chat_message(handle_, messages.data(), messages.size(), ids.data(), ids.size(),
                                  json, capacity, length);
        });
  }

  const tsr_model* handle() const { return handle_; }

 private:
  tsr_model* handle_ = nullptr;
};

// What a forward pass gave.
class Tensors {
 public:
  Tensors(tsr_named_tensor* tensors, std::size_t count) : tensors_(tensors), count_(count) {}
  Tensors(Tensors&& other) noexcept
      : tensors_(std::exchange(other.tensors_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Tensors& operator=(Tensors&& other) noexcept {
    std::swap(tensors_, other.tensors_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Tensors() { tsr_status_release(tsr_tensors_release(tensors_)); }

  const tsr_named_tensor* begin() const { return tensors_; }
  const tsr_named_tensor* end() const { return tensors_ + count_; }
  // Throws Failure for a name that is not there.
  const tsr_named_tensor& at(std::string_view name) const {
    for (const tsr_named_tensor& tensor : *this) {
      if (name == tensor.name) return tensor;
    }
    throw Failure(TSR_NOT_FOUND, "no tensor '" + std::string(name) + "'");
  }

 private:
  tsr_named_tensor* tensors_;
  std::size_t count_;
};

// One call at a time; Cancel from any thread.
class Context {
 public:
  // False ends the generation.
  using OnToken = std::function<bool(const tsr_token& token)>;

  explicit Context(const Model& model,
                   const tsr_context_options& options = Options<tsr_context_options>()) {
    Check(tsr_context_create(model.handle(), internal::Sized(options).get(), &handle_));
  }
  Context(Context&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Context& operator=(Context&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Context() { tsr_status_release(tsr_context_release(handle_)); }

  void Cancel() { Check(tsr_context_cancel(handle_)); }

  // What the context keeps (tsr_context_options.kept_texts).
  Context Fork() {
    Context copy;
    Check(tsr_context_fork(handle_, &copy.handle_));
    return copy;
  }
  void Save(const std::string& path) { Check(tsr_context_save(handle_, path.c_str())); }
  void Restore(const std::string& path) { Check(tsr_context_restore(handle_, path.c_str())); }
  // The same in memory.
  std::string SaveMemory() {
    return internal::Filled<std::string>(
        0, [&](char* data, std::size_t capacity, std::size_t* size) {
          return tsr_context_save_memory(handle_, data, capacity, size);
        });
  }
  void RestoreMemory(std::string_view data) {
    Check(tsr_context_restore_memory(handle_, data.data(), data.size()));
  }
  void Clear() { Check(tsr_context_clear(handle_)); }
  tsr_context_info Describe() {
    auto info = Options<tsr_context_info>();
    Check(tsr_context_describe(handle_, &info));
    return info;
  }

  Tensors Forward(const std::vector<tsr_named_tensor>& in,
                  const tsr_forward_options& options = Options<tsr_forward_options>()) {
    tsr_named_tensor* out = nullptr;
    std::size_t count = 0;
    Check(tsr_forward_with(handle_, in.data(), in.size(), internal::Sized(options).get(), &out,
                           &count));
    return Tensors(out, count);
  }

  // `size`: tsr_model_info.hidden_size.
  std::vector<float> Embed(const std::vector<std::int64_t>& ids, std::int64_t size,
                           const tsr_embed_options& options = Options<tsr_embed_options>()) {
    std::vector<float> vector(static_cast<std::size_t>(size));
    Check(tsr_embed(handle_, ids.data(), ids.size(), internal::Sized(options).get(), vector.data(),
                    vector.size()));
    return vector;
  }

  // As the folder says; `size`: tsr_model_info.embedding_size.
  std::vector<float> EmbedText(std::string_view text, std::int64_t size) {
    std::vector<float> vector(static_cast<std::size_t>(size));
    Check(tsr_embed_text(handle_, text.data(), text.size(), nullptr, vector.data(), vector.size()));
    return vector;
  }
  std::vector<float> EmbedText(std::string_view text, std::int64_t size,
                               const tsr_embed_options& options) {
    std::vector<float> vector(static_cast<std::size_t>(size));
    Check(tsr_embed_text(handle_, text.data(), text.size(), internal::Sized(options).get(),
                         vector.data(), vector.size()));
    return vector;
  }
  // How relevant each document is for the query.
  std::vector<double> Rerank(std::string_view query,
                             const std::vector<std::string_view>& documents) {
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const std::string_view document : documents) {
      texts.push_back(document.data());
      lengths.push_back(document.size());
    }
    std::vector<double> scores(documents.size());
    Check(tsr_rerank(handle_, query.data(), query.size(), texts.data(), lengths.data(),
                     documents.size(), scores.data()));
    return scores;
  }

  // What `on_token` throws ends the generation and is thrown here.
  void Generate(std::string_view prompt, const tsr_generate_options& options,
                const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_generate_text(handle_, prompt.data(), prompt.size(), internal::Sized(options).get(),
                             Call, &caught),
           caught);
  }
  void Generate(const std::vector<std::int64_t>& ids, const tsr_generate_options& options,
                const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_generate(handle_, ids.data(), ids.size(), internal::Sized(options).get(), Call,
                        &caught),
           caught);
  }

  // Several prompts at the same time; tsr_token.sequence says whose a token is.
  void GenerateBatch(const std::vector<std::vector<std::int64_t>>& prompts,
                     const tsr_generate_options& options, const OnToken& on_token) {
    std::vector<const std::int64_t*> ids;
    std::vector<std::size_t> lengths;
    for (const std::vector<std::int64_t>& prompt : prompts) {
      ids.push_back(prompt.data());
      lengths.push_back(prompt.size());
    }
    Caught caught{&on_token, nullptr};
    Finish(tsr_generate_batch(handle_, ids.data(), lengths.data(), ids.size(),
                              internal::Sized(options).get(), Call, &caught),
           caught);
  }

  // The token that follows. `logits`, unless it is nullptr, has tsr_model_info.vocab_size elements.
  std::int64_t Step(const std::vector<std::int64_t>& ids,
                    const tsr_generate_options& options = Options<tsr_generate_options>(),
                    std::vector<double>* logits = nullptr) {
    std::int64_t next = 0;
    Check(tsr_step(handle_, ids.data(), ids.size(), internal::Sized(options).get(), &next,
                   logits == nullptr ? nullptr : logits->data(),
                   logits == nullptr ? 0 : logits->size()));
    return next;
  }

  // Of each of `ids` behind those before it; NAN for the first.
  std::vector<double> Logprobs(const std::vector<std::int64_t>& ids) {
    std::vector<double> logprobs(ids.size());
    Check(tsr_logprobs(handle_, ids.data(), ids.size(), 0, logprobs.data(), nullptr));
    return logprobs;
  }
  // The `top` likeliest tokens at each of those places, the likeliest first: [ids.size()][top].
  std::vector<tsr_logprob> Likeliest(const std::vector<std::int64_t>& ids, std::size_t top) {
    std::vector<double> logprobs(ids.size());
    std::vector<tsr_logprob> likeliest(ids.size() * top);
    Check(tsr_logprobs(handle_, ids.data(), ids.size(), top, logprobs.data(), likeliest.data()));
    return likeliest;
  }

  // Answers a conversation: a JSON list of messages.
  void Chat(std::string_view messages, const tsr_generate_options& options,
            const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_chat(handle_, messages.data(), messages.size(), internal::Sized(options).get(), Call,
                    &caught),
           caught);
  }

  tsr_context* handle() const { return handle_; }

 private:
  Context() = default;

  struct Caught {
    const OnToken* on_token;
    std::exception_ptr exception;
  };
  static int Call(void* user, const tsr_token* token) noexcept {
    auto* const caught = static_cast<Caught*>(user);
    try {
      return (*caught->on_token)(*token) ? 0 : 1;
    } catch (...) {
      caught->exception = std::current_exception();
      return 1;
    }
  }
  static void Finish(tsr_status* status, const Caught& caught) {
    Check(status);
    if (caught.exception) std::rethrow_exception(caught.exception);
  }

  tsr_context* handle_ = nullptr;
};

}  // namespace tsr

#endif  // TESSERA_HPP_
