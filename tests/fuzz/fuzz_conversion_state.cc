// Any bytes as a journal of a conversion.

#include <cstdint>
#include <string_view>

#include "convert/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)blockscale::ParseConversionState(
      std::string_view(reinterpret_cast<const char*>(data), size), "input");
  return 0;
}
