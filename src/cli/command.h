// What the commands of the program share. Each command is one file, NAME_command.cc, with one
// function AddNAME that declares its flags on the root and says what to run.
//
// Exit codes: 0 ok, 1 a check says no, 2 an error (message on stderr), 130 stopped by a signal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "blockscale/status.h"

namespace blockscale::cli {

inline constexpr int kOk = 0;
inline constexpr int kSaysNo = 1;
inline constexpr int kError = 2;
inline constexpr int kStopped = 130;

struct Command {
  CLI::App* app = nullptr;   // its subcommand
  std::function<int()> run;  // called when it was the one chosen; returns the exit code
};

Command AddInspect(CLI::App& root);
Command AddConvert(CLI::App& root);
Command AddVerify(CLI::App& root);
Command AddCheck(CLI::App& root);
Command AddDiff(CLI::App& root);
Command AddSynth(CLI::App& root);
Command AddValidate(CLI::App& root);
Command AddBench(CLI::App& root);
Command AddExplain(CLI::App& root);
Command AddRun(CLI::App& root);

// Counts and sizes: whole numbers from `least` on; what no machine has is a slip of the keyboard.
inline CLI::Range AtLeast(uint64_t least) { return {least, uint64_t{1} << 40}; }

// A flag whose value is one of some names; numbers are no names.
template <typename Value>
CLI::Option* AddChoice(CLI::App* app, const std::string& flag, Value& value,
                       const std::vector<std::pair<std::string, Value>>& choices,
                       const std::string& help) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) names.push_back(name);
  const auto set = [&value, choices](const std::string& text) {
    for (const auto& [name, choice] : choices)
      if (name == text) value = choice;
  };
  return app->add_option_function<std::string>(flag, set, help)->check(CLI::IsMember(names));
}

// Prints "blockscale: error: MESSAGE" on stderr and returns the exit code for it.
int Fail(const Status& status);

}  // namespace blockscale::cli
