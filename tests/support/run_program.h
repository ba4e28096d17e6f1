// Runs the built program as a user would.
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <vector>

namespace blockscale::testing {

struct ProgramRun {
  int exit_code = -1;  // 128 + signal when one ended it
  std::string out;
  std::string err;
  long peak_kib = 0;  // largest resident set
};

// `while_running`, when given, is called with the process id right after the start.
ProgramRun RunProgram(const std::vector<std::string>& arguments,
                      const std::function<void(pid_t)>& while_running = {});

}  // namespace blockscale::testing
