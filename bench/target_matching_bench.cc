// How long it takes to match the real MiniMax-M2.7: its 47,864 matrices as exact targets against
// its 96,103 tensor names.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "model/minimax_m2.h"
#include "runtime/target_matching.h"

int main() {
  using namespace blockscale;
  const std::vector<TensorInfo> tensors = MiniMaxM2Tensors(MiniMaxM27Size());
  CompressedTensorsConfig config;
  config.groups.push_back({.name = "group_0"});
  std::vector<ModuleToMatch> modules;
  for (const TensorInfo& tensor : tensors) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (tensor.dtype == DType::kF8E4M3) config.groups[0].targets.push_back(module);
    modules.push_back({.name = module, .class_name = "ReplicatedModule"});
  }
  std::vector<double> milliseconds;
  size_t matched = 0;
  for (int round = 0; round < 11; ++round) {
    const auto start = std::chrono::steady_clock::now();
    Result<TargetMatcher> matcher = TargetMatcher::Make(config);
    if (!matcher.ok()) return EXIT_FAILURE;
    matched = 0;
    for (const ModuleToMatch& module : modules)
      matched += matcher->MatchLinear(module).group != nullptr;
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  fmt::print("matching {} targets against {} names: {:.1f} ms (median of {}), {} matched\n",
             config.groups[0].targets.size(), modules.size(), milliseconds[milliseconds.size() / 2],
             milliseconds.size(), matched);
  return matched == 2 * config.groups[0].targets.size() ? EXIT_SUCCESS : EXIT_FAILURE;
}
