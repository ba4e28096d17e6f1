#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace blockscale::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr auto kInterval = std::chrono::milliseconds(100);

// Chatter never fails: a stderr that is gone must not end the work (fmt::print would throw).
void Put(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string Minutes(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string verb, bool quiet)
    : verb_(std::move(verb)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

bool Progress::Due() {
  if (quiet_ || !terminal_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < kInterval) return false;
  last_ = now;
  return true;
}

void Progress::Draw(double fraction, const std::string& rest) {
  const int filled = static_cast<int>(fraction * kBarWidth);
  Put(fmt::format("\r{} {:3.0f} % [{:#<{}}{:{}}]  {}\x1b[K", verb_, 100 * fraction, "", filled, "",
                  kBarWidth - filled, rest));
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Bytes(uint64_t done, uint64_t total) {
  if (!std::exchange(started_, true))
    first_bytes_ = done;  // of an earlier run: no part of the rate
  if (!Due()) return;
  const double seconds = std::chrono::duration<double>(last_ - start_).count();
  const double rate = static_cast<double>(done - first_bytes_) / std::max(seconds, 1e-3);
  const double fraction = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  const double gib = 1 << 30;
  std::string left = rate > 0 ? Minutes(static_cast<double>(total - done) / rate) : "-:--";
  Draw(fraction,
       fmt::format("{:.2f}/{:.2f} GiB  {:.2f} GB/s  {} left", static_cast<double>(done) / gib,
                   static_cast<double>(total) / gib, rate / 1e9, left));
}

void Progress::Count(uint64_t done, uint64_t total, const char* what) {
  if (!Due()) return;
  const double fraction = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  Draw(fraction, fmt::format("{}/{} {}", done, total, what));
}

void Progress::Line(const std::string& text) {
  if (quiet_ || terminal_) return;
  Put(fmt::format("{} {}\n", verb_, text));
}

void Progress::Done() {
  if (drawn_) Put("\r\x1b[K");
  drawn_ = false;
}

}  // namespace blockscale::cli
