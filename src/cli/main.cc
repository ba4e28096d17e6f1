// blockscale: the program. Declares the commands and runs the one that was chosen.

#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "blockscale/version.h"
#include "cli/command.h"

namespace blockscale::cli {
namespace {

std::vector<Command> AddCommands(CLI::App& root) {
  return {AddInspect(root), AddConvert(root), AddVerify(root), AddCheck(root), AddSynth(root)};
}

// A checkpoint may have more shards than the usual 1,024 open files.
void AllowManyOpenFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
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
    return root.exit(error) == 0 ? kOk : kError;
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  return kError;
}

}  // namespace

int Fail(const Status& status) {
  fmt::print(stderr, "blockscale: error: {}\n", status.message());
  return status.code() == StatusCode::kCancelled ? kStopped : kError;
}

}  // namespace blockscale::cli

int main(int argc, char** argv) { return blockscale::cli::Main(argc, argv); }
