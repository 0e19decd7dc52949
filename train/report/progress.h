// SPDX-License-Identifier: Apache-2.0
// What a command shows while it works. On a terminal it is one line that redraws itself; elsewhere
// it is lines without control characters.
//
// A run has a bar for each epoch, which stays when the epoch is over:
//
//   epoch 2/3 [=========>                  ] 130/400  step 530/1200  loss 1.234  9120 tokens/s 4:05
//   left
//
// Other work has one bar, which disappears at the end:
//
//   WorkProgress progress(stderr, "eval", "batches");
//   for (int64_t i = 0; i < n; ++i) progress.Show(i, n), Evaluate(i);
//   // eval [=========>                  ] 130/400 batches  0:12 left
#ifndef TESSERA_TRAIN_REPORT_PROGRESS_H_
#define TESSERA_TRAIN_REPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tessera::train {

// A line at the end of `file` that redraws itself, where `file` is a terminal of this process
// alone.
class TerminalLine {
 public:
  // A null `file` is no terminal, nor is one that a launcher's ranks share (mpirun, torchrun).
  explicit TerminalLine(std::FILE* file);

  bool is_terminal() const { return is_terminal_; }
  // Replaces the line by this text.
  void Draw(const std::string& text);
  // Removes the line.
  void Clear();
  // The line stays; the next one begins below it.
  void Keep();

 private:
  std::FILE* const file_;
  const bool is_terminal_;
  bool shown_ = false;
};

// Work of which only a count is known.
class WorkProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what` is done ("eval") in units of `unit` ("batches"). Where there is no terminal, the first
  // line comes after `quiet`, so that short work has none, and each one after twice the time, up to
  // a minute.
  WorkProgress(std::FILE* file, std::string what, std::string unit,
               Clock::duration quiet = std::chrono::seconds(10));
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // `done` of `all` are done. Call it as often as is convenient.
  void Show(int64_t done, int64_t all);

 private:
  std::FILE* const file_;
  const std::string what_;
  const std::string unit_;
  TerminalLine line_;
  const Clock::time_point start_;
  Clock::duration wait_;    // between two lines
  Clock::time_point next_;  // when something is shown again
};

class Progress {
 public:
  // Writes to `file` (stdout); `total` steps, of which `done` were taken before, and
  // `steps_per_epoch` to come for a pass over the data, of which there were `epochs` before. A null
  // `file` is silent.
  Progress(std::FILE* file, int64_t done, int64_t total, double steps_per_epoch, double epochs = 0,
           bool bar = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After every step: redraws the bar (a few times a second). Nothing where there is no terminal.
  void Step(int64_t step, double loss);
  // A row of metrics: a line where there is no terminal, else part of the bar. `notes` follow it.
  void Row(int64_t step, double loss, double lr, double tokens_per_second,
           const std::string& notes = "");
  // A message of its own line, in either case.
  void Message(const std::string& text);

 private:
  struct Epoch {
    int64_t number;  // from 1
    int64_t begin;   // the step before its first
    int64_t end;     // its last
  };
  Epoch EpochOf(int64_t step) const;
  bool draws() const { return bar_ && line_.is_terminal(); }
  void Draw(int64_t step);
  // How long the steps behind this one take, at the pace so far: "12:05".
  std::string Left(int64_t step) const;

  std::FILE* const file_;
  const bool bar_;  // is drawn
  TerminalLine line_;
  const int64_t first_;
  const int64_t total_;
  const double steps_per_epoch_;
  const double before_;  // steps that the epochs before would have taken, less those they took
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
  double loss_ = 0;
  double lr_ = 0;
  double tokens_per_second_ = 0;
  std::string notes_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_PROGRESS_H_
