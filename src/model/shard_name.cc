#include "model/shard_name.h"

#include <charconv>

namespace blockscale {
namespace {

constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kOf = "-of-";

// All of `text` as a decimal number; from_chars refuses an empty one.
std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ShardNumber> ParseShardName(std::string_view name) {
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::string_view before = name.substr(0, of);
  const size_t dash = before.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto number = WholeNumber(before.substr(dash + 1));
  const auto count = WholeNumber(name.substr(of + kOf.size()));
  if (!number || !count) return std::nullopt;
  return ShardNumber{*number, *count};
}

}  // namespace blockscale
