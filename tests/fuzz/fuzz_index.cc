// An index from anywhere: either an error in one line, or shard names that stay inside the folder.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "checkpoint/index.h"
#include "fuzz_expectations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockscale;
  auto index = ParseIndex({reinterpret_cast<const char*>(data), size}, "fuzz.index.json");
  if (!index.ok()) {
    fuzz::ExpectClearError(index.status(), "fuzz.index.json");
    return 0;
  }
  for (const auto& [tensor, shard] : index->weight_map) {
    fuzz::Expect(shard.ends_with(".safetensors"), "a shard of another kind was let pass");
    fuzz::Expect(shard.front() != '/' && ("/" + shard + "/").find("/../") == std::string::npos,
                 "a shard outside the folder was let pass");
    fuzz::Expect(shard.find('\0') == std::string::npos, "a NUL byte was let pass");
  }
  const std::string text = SerializeIndex(index->total_size.value_or(0), index->weight_map);
  const auto again = ParseIndex(text, "again");
  fuzz::Expect(again.ok(), "what was written cannot be read");
  std::sort(index->weight_map.begin(), index->weight_map.end());
  fuzz::Expect(again->weight_map == index->weight_map, "writing changed the map");
  fuzz::Expect(again->total_size == index->total_size.value_or(0), "writing changed total_size");
  return 0;
}
