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
    std::vector<std::int64_t> ids(text.size() + 16);
    std::size_t count = 0;
    tsr_status* status = tsr_tokenize(handle_, text.data(), text.size(), internal::Sized(options).get(), ids.data(),
                                      ids.size(), &count);
    if (tsr_status_code(status) == TSR_OUT_OF_RANGE) {
      tsr_status_release(status);
      ids.resize(count);
      status = tsr_tokenize(handle_, text.data(), text.size(), internal::Sized(options).get(), ids.data(), ids.size(),
                            &count);
    }
    Check(status);
    ids.resize(count);
    return ids;
  }
  std::string Detokenize(
      const std::vector<std::int64_t>& ids,
      const tsr_detokenize_options& options = Options<tsr_detokenize_options>()) const {
    std::size_t length = 0;
    Check(tsr_detokenize(handle_, ids.data(), ids.size(), internal::Sized(options).get(), nullptr, 0, &length));
    std::string text(length, '\0');
    if (length > 0) {
      Check(tsr_detokenize(handle_, ids.data(), ids.size(), internal::Sized(options).get(), &text[0], length, &length));
    }
    return text;
  }
  // [height][width][channels] to [channels][image_height][image_width].
  std::vector<float> PixelValues(const std::uint8_t* pixels, std::int64_t height,
                                 std::int64_t width, std::int64_t channels) const {
    std::size_t count = 0;
    Check(tsr_pixel_values(handle_, pixels, height, width, channels, nullptr, 0, &count));
    std::vector<float> values(count);
    Check(tsr_pixel_values(handle_, pixels, height, width, channels, values.data(), count, &count));
    return values;
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
    Check(tsr_forward_with(handle_, in.data(), in.size(), internal::Sized(options).get(), &out, &count));
    return Tensors(out, count);
  }

  // `size`: tsr_model_info.hidden_size.
  std::vector<float> Embed(const std::vector<std::int64_t>& ids, std::int64_t size,
                           const tsr_embed_options& options = Options<tsr_embed_options>()) {
    std::vector<float> vector(static_cast<std::size_t>(size));
    Check(tsr_embed(handle_, ids.data(), ids.size(), internal::Sized(options).get(), vector.data(), vector.size()));
    return vector;
  }

  // What `on_token` throws ends the generation and is thrown here.
  void Generate(std::string_view prompt, const tsr_generate_options& options,
                const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_generate_text(handle_, prompt.data(), prompt.size(), internal::Sized(options).get(), Call, &caught),
           caught);
  }
  void Generate(const std::vector<std::int64_t>& ids, const tsr_generate_options& options,
                const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_generate(handle_, ids.data(), ids.size(), internal::Sized(options).get(), Call, &caught), caught);
  }

  // The token that follows.
  std::int64_t Step(const std::vector<std::int64_t>& ids,
                    const tsr_generate_options& options = Options<tsr_generate_options>()) {
    std::int64_t next = 0;
    Check(tsr_step(handle_, ids.data(), ids.size(), internal::Sized(options).get(), &next, nullptr, 0));
    return next;
  }

  // Of each of `ids` behind those before it; NAN for the first.
  std::vector<double> Logprobs(const std::vector<std::int64_t>& ids) {
    std::vector<double> logprobs(ids.size());
    Check(tsr_logprobs(handle_, ids.data(), ids.size(), 0, logprobs.data(), nullptr));
    return logprobs;
  }

  // Answers a conversation: a JSON list of messages.
  void Chat(std::string_view messages, const tsr_generate_options& options,
            const OnToken& on_token) {
    Caught caught{&on_token, nullptr};
    Finish(tsr_chat(handle_, messages.data(), messages.size(), internal::Sized(options).get(), Call, &caught), caught);
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
