// SPDX-License-Identifier: Apache-2.0
#include "train/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "dist/comm/launch_environment.h"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string Duration(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

// "[=========>                  ]".
std::string Bar(double share) {
  constexpr int kWidth = 28;
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  std::string bar(static_cast<size_t>(kWidth), ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < kWidth) bar[static_cast<size_t>(filled)] = '>';
  return "[" + bar + "]";
}

// Launchers may give their ranks terminals, whatever becomes of what they write there.
bool IsRank() {
  const StatusOr<dist::LaunchEnvironment> launch = dist::ReadLaunchEnvironment(std::getenv);
  return !launch.ok() || launch->started_by != dist::StartedBy::kAlone;
}

bool CanRedraw(std::FILE* file) {
  if (file == nullptr || isatty(fileno(file)) == 0 || IsRank()) return false;
  const char* const kind = std::getenv("TERM");
  return kind == nullptr || std::string_view(kind) != "dumb";
}

}  // namespace

// --- A line that redraws itself ------------------------------------------------------------------

TerminalLine::TerminalLine(std::FILE* file) : file_(file), is_terminal_(CanRedraw(file)) {}

void TerminalLine::Draw(const std::string& text) {
  std::fprintf(file_, "\r%s\033[K", text.c_str());
  std::fflush(file_);
  shown_ = true;
}

void TerminalLine::Clear() {
  if (!std::exchange(shown_, false)) return;
  std::fputs("\r\033[K", file_);
  std::fflush(file_);
}

void TerminalLine::Keep() {
  if (std::exchange(shown_, false)) std::fputc('\n', file_);
}

// --- Work that is counted ------------------------------------------------------------------------

WorkProgress::WorkProgress(std::FILE* file, std::string what, std::string unit,
                           Clock::duration quiet)
    : file_(file),
      what_(std::move(what)),
      unit_(std::move(unit)),
      line_(file),
      start_(Clock::now()),
      wait_(line_.is_terminal() ? std::chrono::milliseconds(100) : quiet),
      next_(line_.is_terminal() ? start_ : start_ + quiet) {}

WorkProgress::~WorkProgress() { line_.Clear(); }

void WorkProgress::Show(int64_t done, int64_t all) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  constexpr Clock::duration kLongest = std::chrono::minutes(1);
  if (!line_.is_terminal()) wait_ = std::max(wait_, std::min(2 * wait_, kLongest));
  next_ = now + wait_;
  std::string left;
  if (done > 0) {
    const double pace = Seconds(now - start_) / static_cast<double>(done);
    left = "  " + Duration(pace * static_cast<double>(all - done)) + " left";
  }
  const std::string count = absl::StrFormat("%d/%d %s%s", done, all, unit_, left);
  if (line_.is_terminal()) {
    const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, all));
    return line_.Draw(what_ + " " + Bar(share) + " " + count);
  }
  std::fprintf(file_, "%s: %s\n", what_.c_str(), count.c_str());
  std::fflush(file_);
}

// --- A run ---------------------------------------------------------------------------------------

Progress::Progress(std::FILE* file, int64_t done, int64_t total, double steps_per_epoch,
                   double epochs, bool bar)
    : file_(file),
      bar_(bar),
      line_(file),
      first_(done),
      total_(total),
      steps_per_epoch_(std::max(1.0, steps_per_epoch)),
      before_(epochs > 0 ? std::round(epochs * steps_per_epoch_) - static_cast<double>(done) : 0),
      start_(Clock::now()) {}

Progress::~Progress() { line_.Keep(); }

void Progress::Step(int64_t step, double loss) {
  loss_ = loss_ == 0 ? loss : 0.9 * loss_ + 0.1 * loss;
  if (!draws()) return;
  const Clock::time_point now = Clock::now();
  const bool epoch_ends = step == EpochOf(step).end;
  if (step < total_ && !epoch_ends && Seconds(now - drawn_) < 0.1) return;
  drawn_ = now;
  Draw(step);
  if (epoch_ends && step < total_) line_.Keep();
}

// The epoch whose steps (begin, end] have this one; the last may be cut short.
Progress::Epoch Progress::EpochOf(int64_t step) const {
  const auto end_of = [&](int64_t epoch) {
    const double steps = std::ceil(static_cast<double>(epoch) * steps_per_epoch_ - before_);
    return static_cast<int64_t>(std::min(steps, static_cast<double>(total_)));
  };
  auto number = static_cast<int64_t>((static_cast<double>(step) + before_) / steps_per_epoch_);
  while (end_of(number) < step) ++number;
  number = std::max<int64_t>(number, 1);
  while (number > 1 && end_of(number - 1) >= step) --number;
  return {number, end_of(number - 1), end_of(number)};
}

void Progress::Row(int64_t step, double loss, double lr, double tokens_per_second,
                   const std::string& notes) {
  lr_ = lr;
  tokens_per_second_ = tokens_per_second;
  notes_ = notes;
  if (draws() || file_ == nullptr) return;
  std::fprintf(file_, "step %ld/%ld  loss %.4f  lr %.3g  %.0f tokens/s%s  %s left\n", step, total_,
               loss, lr, tokens_per_second, notes.c_str(), Left(step).c_str());
  std::fflush(file_);
}

void Progress::Message(const std::string& text) {
  if (file_ == nullptr) return;
  line_.Clear();
  std::fprintf(file_, "%s\n", text.c_str());
  std::fflush(file_);
}

std::string Progress::Left(int64_t step) const {
  const auto taken = static_cast<double>(std::max<int64_t>(1, step - first_));
  return Duration(Seconds(Clock::now() - start_) / taken * static_cast<double>(total_ - step));
}

void Progress::Draw(int64_t step) {
  const Epoch epoch = EpochOf(step);
  const auto epochs = static_cast<int64_t>(
      std::ceil((static_cast<double>(total_) + before_) / steps_per_epoch_ * (1 - 1e-12)));
  const int64_t steps = std::max<int64_t>(1, epoch.end - epoch.begin);
  const double share = static_cast<double>(step - epoch.begin) / static_cast<double>(steps);
  line_.Draw(
      absl::StrFormat("epoch %d/%d %s %d/%d  step %d/%d  loss %.3f  %.0f tokens/s%s  %s left",
                      epoch.number, std::max<int64_t>(1, epochs), Bar(share), step - epoch.begin,
                      steps, step, total_, loss_, tokens_per_second_, notes_, Left(step)));
}

}  // namespace tessera::train
