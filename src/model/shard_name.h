// What the name of a shard claims: its number, and how many there are. Only the index is
// authoritative; `inspect` says where a name lies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace blockscale {

struct ShardNumber {
  uint64_t number = 0;
  uint64_t count = 0;
};

// "model-00002-of-00130.safetensors" -> {2, 130}. Nullopt for every other form: names come from
// outside, so "part-of-whole" must not become number 0 of 0.
std::optional<ShardNumber> ParseShardName(std::string_view name);

}  // namespace blockscale
