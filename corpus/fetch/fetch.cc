// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/fetch.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/open_file.h"
#include "base/utf8.h"
#include "corpus/engine/hash.h"
#include "corpus/fetch/curl_library.h"
#include "corpus/fetch/private_address.h"
#include "corpus/fetch/robots.h"
#include "corpus/io/charset.h"
#include "corpus/urls/url.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kAhead = 20000;  // addresses that wait, at most
constexpr long kConnectSeconds = 10;
constexpr int kMostPollMilliseconds = 200;
constexpr double kMostDelay = 60;  // whatever a site asks for
constexpr int64_t kRobotsBytes = int64_t{500} << 10;
constexpr int64_t kRobotsRedirects = 5;  // as the RFC asks for
constexpr int64_t kMostHosts = 10000;    // that are known
constexpr int64_t kMostRobotsBytes = int64_t{64} << 20;

// An address that is asked for.
struct Job {
  std::string url;   // as the list has it
  std::string id;    // the document's
  Url at;            // where it is now
  int64_t hops = 0;  // redirections so far
  int64_t tries = 0;
  bool robots = false;  // it is a host's robots.txt
  std::string owner;    // that host
};

struct Host {
  std::deque<Job> waiting;
  bool busy = false;
  Clock::time_point next = Clock::now();
  std::optional<Robots> robots;
  std::string unreachable;  // why it cannot be asked; empty: it can
  bool is_private = false;  // it was at an address that must not be asked
  double delay = 0;
};

std::string AddressOf(const Url& url) {
  return url.scheme + "://" + url.host + (url.port.empty() ? "" : ":" + url.port) + url.path;
}

std::string HostOf(const Url& url) { return url.scheme + "://" + url.host + ":" + url.port; }

// Lines that are added to, and whose whole ones survive a kill.
class LineFile {
 public:
  // Calls `visit` with the whole lines that are there; half a one is cut off.
  static StatusOr<std::unique_ptr<LineFile>> Open(
      const std::string& path, const std::function<void(std::string_view)>& visit) {
    std::string known;
    if (PathExists(path)) {
      TESSERA_ASSIGN_OR_RETURN(known, ReadFile(path));
    }
    known.resize(known.rfind('\n') + 1);
    for (size_t begin = 0; begin < known.size();) {
      const size_t end = known.find('\n', begin);
      visit(std::string_view(known).substr(begin, end - begin));
      begin = end + 1;
    }
    const int fd = OpenFile(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0 || TEMP_FAILURE_RETRY(ftruncate(fd, std::ssize(known))) != 0 ||
        lseek(fd, 0, SEEK_END) < 0) {
      const int error = errno;
      if (fd >= 0) close(fd);
      return SystemFailure(error, path, ": cannot write");
    }
    return std::unique_ptr<LineFile>(new LineFile(path, fd));
  }
  ~LineFile() { close(fd_); }

  Status Append(std::string_view line) {
    while (!line.empty()) {
      const ssize_t n = write(fd_, line.data(), line.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemFailure(errno, path_, ": cannot write");
      line.remove_prefix(static_cast<size_t>(n));
    }
    return OkStatus();
  }
  Status Sync() const {
    return TEMP_FAILURE_RETRY(fdatasync(fd_)) == 0 ? OkStatus()
                                                   : SystemFailure(errno, path_, ": cannot write");
  }

 private:
  LineFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  const std::string path_;
  const int fd_;
};

// A transfer under way.
struct Transfer {
  Job job;
  std::string body;
  int64_t most = 0;
  bool too_large = false;
  bool is_private = false;  // a connection was refused, since its address is
};

// Opens sockets to the public Internet alone: the address is the one that a name was resolved to.
curl_socket_t OpenPublicSocket(void* user, curlsocktype, curl_sockaddr* address) {
  if (IsPrivateAddress(&address->addr)) {
    static_cast<Transfer*>(user)->is_private = true;
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t TakeBody(char* bytes, size_t one, size_t size, void* user) {
  auto* const transfer = static_cast<Transfer*>(user);
  if (std::ssize(transfer->body) + static_cast<int64_t>(one * size) > transfer->most) {
    transfer->too_large = true;
    return 0;
  }
  transfer->body.append(bytes, one * size);
  return one * size;
}

// Where what was not fetched is listed, with the address behind; also what a killed run knows by.
std::string DroppedPath(const FetchOptions& options) { return options.output + ".work.dropped"; }

class Fetcher {
 public:
  Fetcher(const FetchOptions& options, const CurlLibrary& curl, const RunContext& context)
      : options_(options), curl_(curl), context_(context), multi_(curl.multi_init()) {}
  ~Fetcher() {
    for (auto& [handle, transfer] : transfers_) {
      curl_.multi_remove_handle(multi_, handle);
      curl_.easy_cleanup(handle);
    }
    curl_.multi_cleanup(multi_);
  }

  StatusOr<Counts> Run(const std::vector<std::string>& inputs) {
    const auto known = [&](std::string_view url) { done_.insert(HashBytes(url, 0)); };
    TESSERA_ASSIGN_OR_RETURN(out_,
                             LineFile::Open(options_.output + ".part", [&](std::string_view line) {
                               Document document;
                               if (document.Parse(line) != nullptr) return;
                               known(FieldText(document.Text("url")));
                               ++counts_["out"];
                             }));
    TESSERA_ASSIGN_OR_RETURN(
        dropped_, LineFile::Open(DroppedPath(options_) + ".part", [&](std::string_view line) {
          const size_t filter = line.find('\t') + 1, value = line.find('\t', filter) + 1;
          const size_t url = line.find('\t', value) + 1;
          known(line.substr(url));
          ++counts_[Concat("dropped: ", line.substr(filter, value - 1 - filter))];
        }));
    TESSERA_ASSIGN_OR_RETURN(reader_, RecordReader::Open(inputs, {}));
    while (true) {
      ForgetHosts();
      TESSERA_RETURN_IF_ERROR(ReadAhead());
      Begin();
      if (transfers_.empty() && waiting_ == 0 && input_ended_) break;
      int running = 0;
      curl_.multi_perform(multi_, &running);
      TESSERA_RETURN_IF_ERROR(TakeResults());
      curl_.multi_poll(multi_, nullptr, 0, WaitMilliseconds(), nullptr);
      Tell();
    }
    TESSERA_RETURN_IF_ERROR(out_->Sync());
    TESSERA_RETURN_IF_ERROR(dropped_->Sync());
    if (counts_["out"] == 0 && !unreachable_.empty()) {
      return Failure(StatusCode::kUnavailable, "no page could be fetched; ", unreachable_);
    }
    return counts_;
  }

 private:
  Status ReadAhead() {
    while (waiting_ < kAhead && !input_ended_) {
      Block block;
      TESSERA_ASSIGN_OR_RETURN(const bool more, reader_->Next(&block));
      input_ended_ = !more;
      if (!more) break;
      for (const Record& record : block.records) {
        Document document;
        bool passed_over = false;
        const std::string wrong =
            ReadDocument(block, record, options_.text_key, &document, &passed_over);
        if (passed_over) continue;
        ++counts_["in"];
        if (!wrong.empty()) {
          ++counts_[Concat("unreadable: ", wrong)];
          continue;
        }
        std::string address = document.Url();
        if (address.empty()) address = document.text();
        if (!done_.insert(HashBytes(FieldText(address), 0)).second) continue;
        Job job;
        job.url = address;
        job.id = document.id();
        const std::optional<Url> url = ParseUrl(address);
        if (!url) {
          TESSERA_RETURN_IF_ERROR(Drop(job, "malformed_url", ""));
          continue;
        }
        job.at = *url;
        Add(std::move(job));
      }
    }
    return OkStatus();
  }

  void Add(Job job) {
    hosts_[HostOf(job.at)].waiting.push_back(std::move(job));
    ++waiting_;
  }

  // As many transfers as may be under way.
  void Begin() {
    const Clock::time_point now = Clock::now();
    for (auto& [name, host] : hosts_) {
      if (std::ssize(transfers_) >= options_.connections) return;
      if (host.busy || host.waiting.empty() || host.next > now) continue;
      Job job;
      if (host.robots) {
        job = std::move(host.waiting.front());
        host.waiting.pop_front();
        --waiting_;
      } else {
        job.at = host.waiting.front().at;
        job.at.path = "/robots.txt";
        job.robots = true;
        job.owner = name;
      }
      host.busy = true;
      if (host.robots && !host.robots->Allows(job.at.path)) {
        host.busy = false;
        status_.Update(host.is_private            ? DropPrivate(job)
                       : host.unreachable.empty() ? Drop(job, "robots", job.at.path)
                                                  : DropUnreachable(job, host.unreachable));
        continue;
      }
      Start(std::move(job));
    }
  }

  void Start(Job job) {
    CURL* const handle = curl_.easy_init();
    auto transfer = std::make_unique<Transfer>();
    transfer->most = job.robots ? kRobotsBytes : options_.max_bytes;
    const std::string address = AddressOf(job.at);
    transfer->job = std::move(job);
    const auto set = curl_.easy_setopt;
    set(handle, CURLOPT_URL, address.c_str());
    set(handle, CURLOPT_USERAGENT, options_.user_agent.c_str());
    set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    set(handle, CURLOPT_ACCEPT_ENCODING, "");
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout * 1000));
    set(handle, CURLOPT_WRITEFUNCTION, TakeBody);
    set(handle, CURLOPT_WRITEDATA, transfer.get());
    if (!options_.allow_private) {
      set(handle, CURLOPT_OPENSOCKETFUNCTION, OpenPublicSocket);
      set(handle, CURLOPT_OPENSOCKETDATA, transfer.get());
      set(handle, CURLOPT_PROXY, "");  // whose address is all that would be seen
    }
    curl_.multi_add_handle(multi_, handle);
    transfers_.emplace(handle, std::move(transfer));
  }

  Status TakeResults() {
    int left = 0;
    while (CURLMsg* const message = curl_.multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* const handle = message->easy_handle;
      const CURLcode code = message->data.result;
      const std::unique_ptr<Transfer> transfer = std::move(transfers_.at(handle));
      transfers_.erase(handle);
      const Status status = Take(handle, code, *transfer);
      curl_.multi_remove_handle(multi_, handle);
      curl_.easy_cleanup(handle);
      TESSERA_RETURN_IF_ERROR(status);
    }
    return std::exchange(status_, OkStatus());
  }

  // Whether a transfer failed before a server could say anything.
  bool IsUnreachable(CURL* handle, CURLcode code) const {
    if (code == CURLE_OPERATION_TIMEDOUT) {
      curl_off_t ready = 0;  // after so many microseconds
      curl_.easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME_T, &ready);
      return ready == 0;
    }
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR ||
           code == CURLE_PEER_FAILED_VERIFICATION;
  }

  Status Take(CURL* handle, CURLcode code, Transfer& transfer) {
    const bool robots = transfer.job.robots;
    Host& host = hosts_[robots ? transfer.job.owner : HostOf(transfer.job.at)];
    host.busy = false;
    long answer = 0;
    curl_.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer);
    if (robots) {
      TakeRobots(handle, code, answer, transfer, &host);
      return OkStatus();
    }
    if (transfer.is_private) return DropPrivate(transfer.job);
    const double delay = std::max(options_.delay, host.delay);
    host.next = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * delay));
    Job& job = transfer.job;
    const bool transient = (code != CURLE_OK && !transfer.too_large) || answer >= 500;
    if (transient && job.tries < options_.retries) {
      ++job.tries;
      Add(std::move(job));
      return OkStatus();
    }
    if (transfer.too_large) return Drop(job, "too_large", std::to_string(options_.max_bytes));
    if (IsUnreachable(handle, code)) return DropUnreachable(job, curl_.easy_strerror(code));
    if (code != CURLE_OK) return Drop(job, "fetch_error", curl_.easy_strerror(code));
    if (answer >= 300 && answer < 400) return Redirect(handle, job);
    if (answer != 200) return Drop(job, "http_status", std::to_string(answer));
    const char* type = nullptr;
    curl_.easy_getinfo(handle, CURLINFO_CONTENT_TYPE, &type);
    return Write(job, type == nullptr ? "" : type, transfer.body);
  }

  // Without robots.txt all is allowed; where it cannot be had, nothing is. Redirections are
  // followed, to other hosts too, as RFC 9309 asks for (2.3.1.2).
  void TakeRobots(CURL* handle, CURLcode code, long answer, Transfer& transfer, Host* host) {
    if (code == CURLE_OK && answer >= 300 && answer < 400 && transfer.job.hops < kRobotsRedirects) {
      char* target = nullptr;
      curl_.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &target);
      if (const std::optional<Url> url = ParseUrl(target == nullptr ? "" : target)) {
        transfer.job.at = *url;
        ++transfer.job.hops;
        host->busy = true;
        Start(std::move(transfer.job));
        return;
      }
    }
    if (code == CURLE_OK && answer == 200) {
      host->robots = Robots(transfer.body, options_.user_agent);
    } else if (code == CURLE_OK && answer >= 300 && answer < 500) {
      host->robots = Robots();
    } else {
      host->robots = Robots::DenyAll();
      host->is_private = transfer.is_private;
      if (IsUnreachable(handle, code)) host->unreachable = curl_.easy_strerror(code);
    }
    robots_bytes_ += host->robots->bytes();
    host->delay = std::min(kMostDelay, host->robots->crawl_delay().value_or(0));
  }

  Status Redirect(CURL* handle, Job& job) {
    char* target = nullptr;
    curl_.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &target);
    const std::optional<Url> url = ParseUrl(target == nullptr ? "" : target);
    if (!url) return Drop(job, "redirect", target == nullptr ? "nowhere" : target);
    if (++job.hops > options_.redirects) return Drop(job, "redirect", "too often");
    job.at = *url;
    Add(std::move(job));
    return OkStatus();
  }

  Status Write(const Job& job, std::string type, const std::string& body) {
    absl::AsciiStrToLower(&type);
    const bool html = type.find("html") != std::string::npos || type.empty();
    if (!html && !type.starts_with("text/plain")) return Drop(job, "content_type", type);
    const size_t at = type.find("charset=");
    const std::string charset = at == std::string::npos ? "" : type.substr(at + 8);
    std::string line = "{\"url\": ";
    AppendJsonString(ReplaceInvalidUtf8(job.url), &line);
    line += ", \"status\": 200, \"content_type\": ";
    AppendJsonString(ReplaceInvalidUtf8(type), &line);
    line += html ? ", \"html\": " : ", \"text\": ";
    AppendJsonString(Utf8OfPage(body, charset), &line);
    line += "}\n";
    ++counts_["out"];
    return out_->Append(line);
  }

  Status DropPrivate(const Job& job) {
    return Drop(job, "private_address", "allow_private is not given");
  }

  Status DropUnreachable(const Job& job, const std::string& why) {
    if (unreachable_.empty()) unreachable_ = Concat(job.url, ": ", why);
    return Drop(job, "unreachable", why);
  }

  // What is known of hosts that nothing waits for is forgotten where it becomes much; such a host
  // is asked again for its robots.txt.
  void ForgetHosts() {
    if (std::ssize(hosts_) < kMostHosts && robots_bytes_ < kMostRobotsBytes) return;
    const Clock::time_point now = Clock::now();
    for (auto at = hosts_.begin(); at != hosts_.end();) {
      Host& host = at->second;
      const bool idle = !host.busy && host.next <= now;
      if (idle && host.robots && (host.waiting.empty() || robots_bytes_ >= kMostRobotsBytes)) {
        robots_bytes_ -= host.robots->bytes();
        host.robots.reset();
      }
      at = idle && host.waiting.empty() ? hosts_.erase(at) : std::next(at);
    }
  }

  // The line of a list of what was dropped, and the address.
  Status Drop(const Job& job, const std::string& filter, std::string_view value) {
    ++counts_[Concat("dropped: ", filter)];
    return dropped_->Append(Concat(FieldText(job.id), "\t", filter, "\t", FieldText(value), "\t",
                                   FieldText(job.url), "\n"));
  }

  int WaitMilliseconds() const {
    return transfers_.empty() && waiting_ == 0 ? 0 : kMostPollMilliseconds;
  }

  void Tell() {
    if (!context_.progress || Clock::now() - last_told_ < std::chrono::seconds(1)) return;
    last_told_ = Clock::now();
    context_.progress("fetch", reader_->bytes_read(), reader_->bytes_in_all());
  }

  const FetchOptions& options_;
  const CurlLibrary& curl_;
  const RunContext& context_;
  CURLM* const multi_;
  std::map<std::string, Host> hosts_;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers_;
  absl::flat_hash_set<uint64_t> done_;
  std::unique_ptr<RecordReader> reader_;
  std::unique_ptr<LineFile> out_, dropped_;
  std::string unreachable_;   // the first address of a host that could not be reached, and why
  int64_t robots_bytes_ = 0;  // of all hosts
  size_t waiting_ = 0;
  bool input_ended_ = false;
  Counts counts_;
  Status status_;
  Clock::time_point last_told_ = Clock::now();
};

// The list without the addresses.
Status WriteDropped(const std::string& from, const std::string& to) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(from));
  std::string list;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    list += line.substr(0, line.rfind('\t'));
    list += '\n';
    begin = end + 1;
  }
  return WriteFileAtomically(to, list);
}

}  // namespace

const OptionTable& FetchOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<FetchOptions>("Fetching")
          .Include<FetchOptions, FilterFiles>()
          .Add("user_agent", &FetchOptions::user_agent, "who asks: what robots.txt and servers see")
          .Add("connections", &FetchOptions::connections, "pages at once, each of another host",
               {.least = 1, .most = 1000})
          .Add("delay", &FetchOptions::delay,
               "seconds between two pages of a host, or what its robots.txt asks for, if that is "
               "more",
               {.least = 0})
          .Add("timeout", &FetchOptions::timeout, "seconds for a page", {.above = 0})
          .Add("max_bytes", &FetchOptions::max_bytes, "of a page; larger ones are dropped",
               {.least = 1})
          .Add("redirects", &FetchOptions::redirects, "most redirections of a page", {.least = 0})
          .Add("retries", &FetchOptions::retries,
               "how often more a page is asked for that failed by no fault of its own",
               {.least = 0})
          .Add("allow_private", &FetchOptions::allow_private,
               "also connect to addresses outside of the public Internet (loopback, private and "
               "link-local networks), and through proxies of the environment"));
  return *table;
}

StatusOr<Counts> RunFetch(const FetchOptions& options, const RunContext& context) {
  if (context.ranks->size() > 1) return InvalidArgument("fetch: runs on one rank");
  if (!options.output.ends_with(".jsonl")) {
    return InvalidArgument("fetch: output must be a .jsonl file");
  }
  DocumentPass pass;
  pass.name = "fetch";
  pass.files = options;
  pass.made_from = {{"max_bytes", options.max_bytes},
                    {"redirects", options.redirects},
                    {"allow_private", options.allow_private}};
  TESSERA_ASSIGN_OR_RETURN(const BlockRun run, MakeBlockRun(pass));
  return RunOnce(run, DroppedPath(options) + ".part", context, [&]() -> StatusOr<Counts> {
    TESSERA_ASSIGN_OR_RETURN(const CurlLibrary* const curl, LoadCurl());
    TESSERA_ASSIGN_OR_RETURN(const Counts counts, Fetcher(options, *curl, context).Run(run.inputs));
    if (!options.dropped.empty()) {
      TESSERA_RETURN_IF_ERROR(WriteDropped(DroppedPath(options) + ".part", options.dropped));
    }
    const std::string part = options.output + ".part";
    if (rename(part.c_str(), options.output.c_str()) != 0) {
      return SystemFailure(errno, options.output, ": cannot write");
    }
    TESSERA_RETURN_IF_ERROR(MarkDone(run, counts));
    return counts;
  });
}

}  // namespace tessera::corpus
