// model.safetensors.index.json: which tensor lives in which shard. The index alone is
// authoritative: shard names lie about their number, and folders hold shards that no index names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace blockscale {

inline constexpr char kIndexFileName[] = "model.safetensors.index.json";
inline constexpr uint64_t kMaxIndexBytes = 1'000'000'000;

struct CheckpointIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor -> shard, in file order
  std::optional<uint64_t> total_size;  // metadata.total_size where it is a whole number
};

// Refuses what is not an index, duplicate tensors, and shard names that are absolute, climb with
// "..", hold a NUL or a backslash, or do not end in .safetensors. Shards in subfolders are allowed.
Result<CheckpointIndex> ParseIndex(std::string_view json, const std::string& file);

// The text as Hugging Face writes it: indent 2, names sorted by bytes, a newline at the end.
std::string SerializeIndex(uint64_t total_size,
                           std::vector<std::pair<std::string, std::string>> weight_map);

}  // namespace blockscale
