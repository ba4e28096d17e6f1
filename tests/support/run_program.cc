#include "support/run_program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "support/temp_folder.h"

namespace blockscale::testing {

ProgramRun RunProgram(const std::vector<std::string>& arguments,
                      const std::function<void(pid_t)>& while_running) {
  const TempFolder folder;
  const std::string out = folder / "out", err = folder / "err";
  for (const std::string& file : {out, err})
    WriteFile(file, "");  // a child may die before it opens them
  std::vector<std::string> words = {BLOCKSCALE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  BLOCKSCALE_CHECK(child >= 0, "fork");
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (while_running) while_running(child);
  int status = 0;
  rusage usage{};
  BLOCKSCALE_CHECK(wait4(child, &status, 0, &usage) == child, "wait4");
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = ReadFile(out),
          .err = ReadFile(err),
          .peak_kib = usage.ru_maxrss};
}

}  // namespace blockscale::testing
