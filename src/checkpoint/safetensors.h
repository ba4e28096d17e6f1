// safetensors files: reading a header without trusting a byte of it, and laying one out exactly as
// the reference writer does.
//
//   +-----------------+----------------------------+------------------------------+
//   | u64 LE, N       | N bytes of JSON (UTF-8)    | tensor bytes, no holes       |
//   +-----------------+----------------------------+------------------------------+
//   0                 8                            8+N = data_start               EOF
//
// Rules: docs/formats.md. Source: the safetensors reference implementation (tensor.rs, 2026-05);
// duplicate names, which it lets pass in one case, are refused here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/dtype.h"
#include "checkpoint/file_system.h"

namespace blockscale {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // decimal, strictly larger is refused

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // empty: a scalar, one element
  uint64_t begin = 0;           // bytes, relative to data_start
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const;  // product of shape; it was checked not to overflow
};

struct SafetensorsHeader {
  uint64_t data_start = 0;          // 8 + N
  std::vector<TensorInfo> tensors;  // in file order, without holes or overlaps
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__", in file order
  bool has_metadata = false;

  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
  uint64_t file_bytes() const { return data_start + data_bytes(); }
};

// Parses the JSON of a header. `file` names the file in errors. Checks every rule that needs no
// file size: names, types, shapes, sizes, order, overflow.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& file);

// Reads and checks the header of a file, its length against the file's size included.
Result<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file);

// Lays tensors out in the reference writer's order (dtype descending, then name by bytes), sets
// begin and end, and returns the bytes before the data: length, compact JSON with the metadata
// {"format":"pt"}, spaces up to a multiple of 8. `header` receives the layout.
// Fails when the JSON would be larger than kMaxHeaderBytes.
Result<std::string> LayOutSafetensors(std::vector<TensorInfo> tensors, SafetensorsHeader* header);

// Bytes of a tensor of this type and shape, or an error that names the tensor on overflow or when
// the bits do not fill whole bytes.
Result<uint64_t> TensorBytes(const std::string& name, DType dtype,
                             const std::vector<uint64_t>& shape);

// "[1536, 3072]"
std::string ShapeText(const std::vector<uint64_t>& shape);

}  // namespace blockscale
