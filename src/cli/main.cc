// blockscale: the program. Declares the commands and runs the one that was chosen.

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <vector>

#include "base/status.h"
#include "blockscale/version.h"
#include "cli/command.h"

namespace blockscale::cli {
namespace {

std::vector<Command> AddCommands(CLI::App& root) {
  return {AddInspect(root), AddConvert(root),  AddVerify(root), AddDiff(root),    AddCheck(root),
          AddSynth(root),   AddValidate(root), AddBench(root),  AddExplain(root), AddRun(root)};
}

// A checkpoint may have more shards than the usual 1,024 open files.
void AllowManyOpenFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Runs a command; what it printed must have arrived. A reader that left early (| head) has all that
// it wanted, but a full disk under stdout is an error.
int RunAndFlush(const Command& command) {
  int code = kOk;
  int error = 0;
  try {
    code = command.run();
    if (std::fflush(stdout) != 0) error = errno;
  } catch (const std::system_error& failed) {  // fmt::print, when it cannot write
    error = failed.code().value();
  }
  if (error == 0 || error == EPIPE) return code;
  return Fail({StatusCode::kIo, fmt::format("cannot write to stdout: {}", std::strerror(error))});
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left (| head) is no error
  AllowManyOpenFiles();
  CLI::App root(
      "Block-scaled checkpoints of mixture-of-experts models: look into them, convert "
      "them, verify the result.",
      "blockscale");
  root.set_version_flag("--version", std::string("blockscale ") + Version());
  root.require_subcommand(1);
  root.footer(
      "Exit codes: 0 ok, 1 a check says no, 2 an error, 130 stopped by a signal.\n"
      "`blockscale COMMAND --help` explains each command.");
  const std::vector<Command> commands = AddCommands(root);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return root.exit(error);  // --help and --version
    return Fail(InvalidInput("{}; `blockscale COMMAND --help` explains", error.what()));
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return RunAndFlush(command);
  return kError;
}

}  // namespace

int Fail(const Status& status) {
  std::fputs(fmt::format("blockscale: error: {}\n", status.message()).c_str(), stderr);
  return status.code() == StatusCode::kCancelled ? kStopped : kError;
}

}  // namespace blockscale::cli

int main(int argc, char** argv) { return blockscale::cli::Main(argc, argv); }
