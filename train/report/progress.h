// SPDX-License-Identifier: Apache-2.0
// What a run shows while it goes: on a terminal a bar for each epoch, which redraws itself and
// stays when the epoch is over; lines elsewhere, and where no bar is wanted.
//
//   epoch 2/3 [=========>                  ] 130/400  step 530/1200  loss 1.234  9120 tokens/s 4:05
//   left
#ifndef TESSERA_TRAIN_REPORT_PROGRESS_H_
#define TESSERA_TRAIN_REPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tessera::train {

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
  void Draw(int64_t step);
  // How long the steps behind this one take, at the pace so far: "12:05".
  std::string Left(int64_t step) const;

  std::FILE* const file_;
  const bool terminal_;
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
  bool bar_shown_ = false;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_PROGRESS_H_
