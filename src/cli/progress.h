// Progress of long work, on stderr: a bar that is redrawn on a terminal, one line per finished
// shard elsewhere, nothing when quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace blockscale::cli {

class Progress {
 public:
  Progress(std::string verb, bool quiet);
  ~Progress() { Done(); }

  // "converting  42 % [####      ]  12.3/29.1 GiB  1.84 GB/s  0:09 left"
  void Bytes(uint64_t done, uint64_t total);
  void Count(uint64_t done, uint64_t total, const char* what);
  // Something finished: a line of its own where there is no terminal.
  void Line(const std::string& text);
  // Clears the bar. Safe to call twice.
  void Done();

 private:
  void Draw(double fraction, const std::string& rest);
  bool Due();

  std::string verb_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
  uint64_t first_bytes_ = 0;
  bool started_ = false;
};

}  // namespace blockscale::cli
