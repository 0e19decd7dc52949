// SPDX-License-Identifier: Apache-2.0
// GET /health, /load and /metrics: how the server is.
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

// Lines of Prometheus' text format.
class Metrics {
 public:
  void Counter(const std::string& name, const std::string& help, double value) {
    Head(name, help, "counter");
    Value(name, "", value);
  }
  void Gauge(const std::string& name, const std::string& help, double value) {
    Head(name, help, "gauge");
    Value(name, "", value);
  }
  void Head(const std::string& name, const std::string& help, const char* type) {
    text_ += Concat("# HELP tessera_", name, " ", help, "\n# TYPE tessera_", name, " ", type, "\n");
  }
  void Value(const std::string& name, const std::string& labels, double value) {
    text_ += Concat("tessera_", name, labels, " ", JsonText(value), "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

void AnswerHealth(Service& service, Call call) {
  const bool draining = service.queue().state().draining;
  service.Respond(call.exchange, draining ? 503 : 200,
                  {{"status", draining ? "going down" : "ok"}});
}

void AnswerLoad(Service& service, Call call) {
  const ServedModel& served = service.served();
  const InferenceQueue::State state = service.queue().state();
  ordered_json running = ordered_json::array();
  for (const InferenceQueue::Running& text : state.running) {
    const bool base = text.adapter == kBaseModel;
    running.push_back(
        {{"client", text.client},
         {"state", text.made > 0 ? "writing" : "reading"},
         {"prompt", text.prompt},
         {"read", text.read},
         {"made", text.made},
         {"limit", text.limit},
         {"seconds", text.seconds},
         {"adapter", base ? ordered_json() : ordered_json(service.NameOf(text.adapter))}});
  }
  service.Respond(
      call.exchange, 200,
      {{"model", served.name},
       {"chat", served.chat != nullptr},
       {"key_needed", !service.options().api_keys.empty()},
       {"slots", service.options().queue.slots},
       {"waiting", state.waiting},
       {"running", std::move(running)},
       {"pages",
        {{"in_use", state.batch.pages_in_use}, {"all", service.options().queue.cache.max_pages}}},
       {"passes", state.batch.passes},
       {"tokens_made", state.batch.tokens_made},
       {"tokens_read", state.batch.tokens_read},
       {"tokens_taken", state.batch.tokens_taken},
       {"refused", state.refused},
       {"uptime_seconds", service.uptime_seconds()}});
}

void AnswerMetrics(Service& service, Call call) {
  const InferenceQueue::State state = service.queue().state();
  Metrics metrics;
  metrics.Gauge("uptime_seconds", "Since the server began.", service.uptime_seconds());
  metrics.Gauge("slots", "Texts that are written at once, at most.",
                static_cast<double>(service.options().queue.slots));
  metrics.Gauge("texts_running", "Texts that have a slot.",
                static_cast<double>(state.running.size()));
  metrics.Gauge("texts_waiting", "Texts that wait for one.", static_cast<double>(state.waiting));
  metrics.Gauge("texts_resting", "Texts whose keys are kept for prompts that begin alike.",
                static_cast<double>(state.batch.resting));
  metrics.Gauge("cache_pages", "Pages of keys and values, at most.",
                static_cast<double>(service.options().queue.cache.max_pages));
  metrics.Gauge("cache_pages_in_use", "Those that texts hold, resting ones included.",
                static_cast<double>(state.batch.pages_in_use));
  metrics.Counter("texts_ended_total", "Texts that came to their end.",
                  static_cast<double>(state.ended));
  metrics.Counter("texts_cancelled_total",
                  "Texts whose client left, or that another's failure ended.",
                  static_cast<double>(state.cancelled));
  metrics.Counter("texts_refused_total", "Texts for which there was no place to wait.",
                  static_cast<double>(state.refused));
  metrics.Counter("texts_timed_out_total", "Texts that took too long.",
                  static_cast<double>(state.timed_out));
  metrics.Counter("texts_gave_way_total", "Times that a text gave its pages to another.",
                  static_cast<double>(state.batch.gave_way));
  metrics.Counter("passes_total", "Passes of the model.", static_cast<double>(state.batch.passes));
  metrics.Counter("prompt_tokens_read_total", "Tokens of prompts that the model read.",
                  static_cast<double>(state.batch.tokens_read));
  metrics.Counter("prompt_tokens_taken_total", "Tokens of prompts that another text had read.",
                  static_cast<double>(state.batch.tokens_taken));
  metrics.Counter("tokens_made_total", "Tokens that were written.",
                  static_cast<double>(state.batch.tokens_made));
  metrics.Head("answers_total", "Answers by HTTP status.", "counter");
  for (const auto& [status, count] : service.answers()) {
    metrics.Value("answers_total", Concat("{status=\"", status, "\"}"), static_cast<double>(count));
  }
  if (service.server() != nullptr) {
    const net::HttpServer::Counts counts = service.server()->counts();
    metrics.Gauge("connections", "Connections that are open.",
                  static_cast<double>(counts.connections));
    metrics.Counter("connections_total", "Connections so far.",
                    static_cast<double>(counts.accepted));
    metrics.Counter("requests_total", "Requests so far.", static_cast<double>(counts.requests));
    metrics.Counter("requests_refused_total", "Requests that were no HTTP, too long or too slow.",
                    static_cast<double>(counts.refused));
    metrics.Counter("clients_gone_total", "Clients that left before their answer was sent.",
                    static_cast<double>(counts.gone));
  }
  service.RespondText(call.exchange, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                      .body = metrics.Take()});
}

}  // namespace tessera::serve
