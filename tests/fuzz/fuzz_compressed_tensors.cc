// Any JSON as a compressed-tensors config, and its patterns against a few names.

#include <cstdint>
#include <string_view>

#include "checkpoint/json_reader.h"
#include "runtime/target_matching.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockscale;  // NOLINT
  const auto json =
      ParseJsonStrictly(std::string_view(reinterpret_cast<const char*>(data), size), "input");
  if (!json.ok() || !json->is_object()) return 0;
  const auto config = ParseCompressedTensorsConfig(*json);
  if (!config.ok()) return 0;
  auto matcher = TargetMatcher::Make(*config);
  if (!matcher.ok()) return 0;
  (void)matcher->MatchLinear({"a.qkv_proj", "QKVParallelLinear", {"a.q_proj", "a.k_proj"}});
  (void)matcher->MatchExperts("a.mlp.experts", "RoutedExperts");
  return 0;
}
