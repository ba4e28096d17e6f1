// A safetensors header from anywhere: either an error in one line, or a layout without holes that
// the writer lays out again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "fuzz_expectations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockscale;
  const auto header =
      ParseSafetensorsHeader({reinterpret_cast<const char*>(data), size}, "fuzz.safetensors");
  if (!header.ok()) {
    fuzz::ExpectClearError(header.status(), "fuzz.safetensors");
    return 0;
  }
  uint64_t at = 0;
  for (const TensorInfo& tensor : header->tensors) {
    fuzz::Expect(tensor.begin == at && tensor.end >= at, "a hole or an overlap was let pass");
    const auto bytes = TensorBytes(tensor.name, tensor.dtype, tensor.shape);
    fuzz::Expect(bytes.ok() && *bytes == tensor.bytes(), "a tensor of another size was let pass");
    at = tensor.end;
  }
  fuzz::Expect(header->data_bytes() == at, "data_bytes() is not where the last tensor ends");

  SafetensorsHeader laid_out;
  const auto text = LayOutSafetensors(header->tensors, &laid_out);
  fuzz::Expect(text.ok(), "what was read cannot be written");
  fuzz::Expect(text->size() % 8 == 0 && text->size() == laid_out.data_start, "data is unaligned");
  const auto again = ParseSafetensorsHeader(std::string_view(*text).substr(8), "again");
  fuzz::Expect(again.ok() && again->tensors.size() == header->tensors.size(),
               "what was written cannot be read");
  fuzz::Expect(again->data_bytes() == header->data_bytes(), "writing changed the size");
  return 0;
}
