// A config.json from anywhere: either an error in one line, or fields that can be asked for.

#include <cstddef>
#include <cstdint>

#include "checkpoint/hf_config.h"
#include "fuzz_expectations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockscale;
  const auto config = ParseHfConfig({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!config.ok()) {
    fuzz::ExpectClearError(config.status(), "fuzz.json");
    return 0;
  }
  (void)config->Number("hidden_size");
  (void)config->Number("num_hidden_layers");
  if (config->quantization.has_value()) {
    fuzz::Expect(config->quantization_json().is_object(), "a quantization that is no object");
    if (const auto block = config->quantization->block_size)
      fuzz::Expect(block->rows > 0 && block->columns > 0 && block->rows < (uint64_t{1} << 31) &&
                       block->columns < (uint64_t{1} << 31),
                   "a block size out of range was let pass");
  }
  const auto again = ParseHfConfig(config->json.dump(), "again");
  fuzz::Expect(again.ok() && again->json == config->json, "writing changed the config");
  return 0;
}
