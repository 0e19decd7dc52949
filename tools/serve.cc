// SPDX-License-Identifier: Apache-2.0
// `tessera serve`: a model behind HTTP (serve/).
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/file.h"
#include "base/json_text.h"
#include "data/chat/chat_format.h"
#include "models/family.h"
#include "models/generation/incremental_decoder.h"
#include "models/open/open_model.h"
#include "net/http/waiting_signals.h"
#include "serve/server.h"
#include "tools/api_keys.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"

namespace tessera::tools {
namespace {

struct ServeFlags : ComputeFlags {
  std::string model;
  std::vector<std::string> adapter;  // NAME=DIR
  std::string name;
  std::string tokenizer;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string api_key_file;
  std::string cors_origin;
  int64_t slots = 8;
  int64_t max_waiting = 256;
  int64_t timeout = 600;
  int64_t cache_memory = 0;  // MiB; 0: a quarter of the machine's
  int64_t max_connections = net::HttpServerOptions().max_connections;
  int64_t max_body_bytes = 4 << 20;
};

bool IsLoopback(std::string host) {
  absl::AsciiStrToLower(&host);
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

// What the cache may take: what the slots can use, and half as much for texts that rest, within the
// memory. Where texts have no greatest length, it begins with what texts of kUsualPositions need.
StatusOr<nn::KeyValueCacheOptions> CacheOptions(const models::Model& model,
                                                const ServeFlags& flags) {
  nn::KeyValueCacheOptions cache;
  if (model.num_cache_layers() == 0) return cache;
  // What a page takes is known once there is one.
  models::IncrementalDecoder decoder(model);
  std::vector<int64_t> text = {0};
  if (const models::EncoderDecoder* const both = model.encoder_decoder()) {
    text = {both->decoder_start()};
    decoder.Encode({text});
  }
  if (const auto format = model.text_format()) {
    TESSERA_ASSIGN_OR_RETURN(text, format->PreparePrompt(std::move(text)));
  }
  decoder.Feed({text});
  const int64_t page_bytes = decoder.cache().page_bytes();
  const int64_t machine = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const int64_t memory = flags.cache_memory > 0 ? flags.cache_memory << 20 : machine / 4;
  const int64_t most = std::max<int64_t>(1, memory / page_bytes);
  constexpr int64_t kUsualPositions = 512;
  const int64_t positions = model.max_positions();
  const int64_t of_slots =
      flags.slots * ((positions > 0 ? positions : kUsualPositions) / cache.page_size + 1);
  const int64_t wanted = std::min(most, of_slots + of_slots / 2);
  cache.max_pages = positions > 0 ? wanted : most;
  cache.first_pages = wanted;
  return cache;
}

std::string NameOfFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// As browsers write one: scheme, host and port, and nothing behind them (RFC 6454, 6.1).
Status CheckOrigin(const std::string& origin) {
  if (origin.empty() || origin == "*") return OkStatus();
  const size_t host = origin.find("://");
  const bool fits = host != std::string::npos && host > 0 && host + 3 < origin.size() &&
                    origin.find_first_of("/ ,\r\n", host + 3) == std::string::npos;
  if (fits) return OkStatus();
  return InvalidArgument("--cors-origin must be as https://chat.example.com or *, not ", origin);
}

Status RunServe(ServeFlags flags) {
  // Before the model's threads begin.
  const net::WaitingSignals signals;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(flags.api_key_file));
  if (!IsLoopback(flags.host) && keys.empty()) {
    return InvalidArgument("--host ", flags.host,
                           ": other machines are served with a key alone (--api-key-file)");
  }
  TESSERA_RETURN_IF_ERROR(CheckOrigin(flags.cors_origin));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  // A copy of the weights in large pages is read faster than the file's, by a fifth and more.
  models::OpenOptions options = {.load = {.build = build, .require_weights = true, .warn = WarnOf},
                                 .tokenizer_folder = flags.tokenizer};
  options.load.quantize = QuantizeOf(flags);
  std::vector<std::string> names;
  for (const std::string& adapter : flags.adapter) {
    const size_t equals = adapter.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == adapter.size()) {
      return InvalidArgument("--adapter must be NAME=DIR, not ", adapter);
    }
    names.push_back(adapter.substr(0, equals));
    options.load.adapters.push_back(adapter.substr(equals + 1));
  }
  options.hides_paths = true;  // clients learn no path of this machine
  options.before_weights = [&](const models::OpenedModel& opened) -> Status {
    if (opened.chat.ok() || opened.chat.status().code() == StatusCode::kNotFound) return OkStatus();
    return data::ChatFormat::OfFolder(opened.tokenizer_folder).status();
  };
  TESSERA_ASSIGN_OR_RETURN(const models::OpenedModel opened,
                           models::OpenModel(flags.model, options));
  TESSERA_ASSIGN_OR_RETURN(const models::Family* const family, models::FamilyOf(opened.config));

  if (flags.name.empty()) flags.name = NameOfFolder(flags.model);
  if (std::find(names.begin(), names.end(), flags.name) != names.end()) {
    return InvalidArgument("--adapter ", flags.name, ": the model has that name");
  }
  const auto& conversation = family->texts.conversation;
  serve::ServedModel served = {.name = flags.name,
                               .model = *opened.model,
                               .tokenizer = *opened.tokenizer,
                               .chat = opened.chat.ok() ? &*opened.chat : nullptr,
                               .conversation = conversation ? &*conversation : nullptr,
                               .generates = models::Generates(*opened.model),
                               .defaults = opened.generation,
                               .adapters = names,
                               .encoder = opened.encoder};
  serve::ServiceOptions service = {.api_keys = keys, .cors_origin = flags.cors_origin};
  service.queue.slots = flags.slots;
  service.queue.max_waiting = flags.max_waiting;
  service.queue.timeout = std::chrono::seconds(flags.timeout);
  if (served.generates) {
    TESSERA_ASSIGN_OR_RETURN(service.queue.cache, CacheOptions(*opened.model, flags));
  }
  const net::HttpServerOptions http = {.host = flags.host,
                                       .port = static_cast<int>(flags.port),
                                       .max_connections = flags.max_connections,
                                       .max_body_bytes = flags.max_body_bytes};
  return serve::ServeUntilSignal(served, service, http, signals, [](const std::string& url) {
    return WriteOut(Concat("listening on ", url, "\n"));
  });
}

}  // namespace

void AddServeCommand(CLI::App& app, CommandState& state) {
  using F = ServeFlags;
  CLI::App* command = app.add_subcommand("serve", "Answer over HTTP with a model");
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("model", &F::model, kModelHelp, {.type = "MODEL"})
      .Add("adapter", &F::adapter,
           "an adapter (a folder of PEFT's) beside the model, asked for by its name; may be given "
           "several times",
           {.type = "NAME=DIR"})
      .Add("name", &F::name, "what the model is called",
           {.type = "NAME", .unset = "its folder's name"})
      .Add("tokenizer", &F::tokenizer, kTokenizerHelp,
           {.type = "DIR", .unset = "the model's folder"})
      .Add("host", &F::host, "the address to listen on", {.type = "ADDRESS"})
      .Add("port", &F::port, "the port; 0: any that is free", {.least = 0, .most = 65535})
      .Add("api_key_file", &F::api_key_file,
           "a file with a key on each line, one of which clients must give", {.type = "FILE"})
      .Add(
          "cors_origin", &F::cors_origin,
          "whose pages may ask and read answers in a browser, beside the server's own; *: anyone's",
          {.type = "ORIGIN"})
      .Add("slots", &F::slots, "texts that are written at once", {.least = 1, .most = 1024})
      .Add("max_waiting", &F::max_waiting, "texts that may wait for a slot", {.least = 0})
      .Add("timeout", &F::timeout,
           "seconds that a text may take from its arrival to its end; 0: any",
           {.least = 0, .type = "SECONDS"})
      .Add("cache_memory", &F::cache_memory,
           "MiB that keys and values of texts may take; 0: what the slots can use, at most a "
           "quarter "
           "of the machine's memory",
           {.least = 0, .type = "MIB"})
      .Add("max_connections", &F::max_connections, "connections at once; more are turned away",
           {.least = 1})
      .Add("max_body_bytes", &F::max_body_bytes,
           "bytes of a request; longer ones are refused, and more than 256 MiB of all at once",
           {.least = 1})
      .Include<F, ComputeFlags>();
  command->footer(
      "Defaults in brackets. docs/serving.md lists the addresses.\n"
      "Examples:\n"
      "  tessera serve --model gpt2-folder --port 8000\n"
      "  tessera serve --model qwen-folder --dtype q8_0 --adapter mine=out/adapter --slots 16");
  RunWith<F>(command, state, std::move(table), {.by_place = {"model"}, .required = {"model"}},
             [](const CLI::App&, const F& flags) { return RunServe(flags); });
}

}  // namespace tessera::tools
