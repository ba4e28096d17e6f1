#include "checkpoint/index.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/json_reader.h"

namespace blockscale {
namespace {

// A shard name comes from outside and becomes a path: it may only lead into the folder.
Status CheckShardName(const std::string& shard, const std::string& tensor,
                      const std::string& file) {
  const auto refuse = [&](const char* why) {
    return InvalidInput("{}: weight_map of tensor '{}' names the shard '{}', which {}", file,
                        tensor, shard, why);
  };
  if (shard.empty()) return refuse("is empty");
  if (shard.size() > 1024) return refuse("is longer than 1024 bytes");
  if (shard.front() == '/') return refuse("is an absolute path; only names inside the folder do");
  if (shard.find('\\') != std::string::npos) return refuse("holds a backslash");
  for (const char c : shard)
    if (static_cast<unsigned char>(c) < 0x20) return refuse("holds a control character");
  for (size_t begin = 0; begin <= shard.size();) {
    const size_t end = std::min(shard.find('/', begin), shard.size());
    const std::string_view part = std::string_view(shard).substr(begin, end - begin);
    if (part == "..") return refuse("climbs out of the folder with '..'");
    if (part.empty() || part == ".") return refuse("has an empty or '.' part");
    begin = end + 1;
  }
  if (!shard.ends_with(".safetensors")) return refuse("does not end in .safetensors");
  return OkStatus();
}

// Builds the map from JSON events: a tree that keeps order would look each of 100,000 names up one
// by one. Depth 1 is the document, depth 2 the inside of weight_map or metadata.
class IndexEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  IndexEvents(const std::string& file, CheckpointIndex* index) : file_(file), index_(index) {}
  const Status& failure() const { return failure_; }
  bool has_map() const { return has_map_; }

  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("a boolean"); }
  bool number_integer(number_integer_t) override { return Value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Value("a number"); }
  bool binary(binary_t&) override { return Value("binary"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 2 && section_ == "metadata" && key_ == "total_size") index_->total_size = value;
    return Value("a number");
  }
  bool string(string_t& value) override {
    if (!(depth_ == 2 && section_ == "weight_map")) return Value("a string");
    failure_ = CheckShardName(value, key_, file_);
    if (!failure_.ok()) return false;
    index_->weight_map.emplace_back(key_, value);
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 1 && section_ == "weight_map")
      has_map_ = true;
    else if (depth_ >= 1 && !Value("an object"))
      return false;
    return Deeper();
  }
  bool start_array(size_t) override {
    if (depth_ == 0) return Fail("is an array, not an object");
    return Value("an array") && Deeper();
  }
  bool end_object() override { return Shallower(); }
  bool end_array() override { return Shallower(); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      if (!sections_.insert(name).second) return Fail("name '{}' stands twice", name);
      section_ = name;
    } else if (depth_ == 2) {
      key_ = name;
      if (section_ == "weight_map" && !tensors_.insert(name).second)
        return Fail("tensor '{}' stands twice in weight_map", name);
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    return Fail("is not JSON: {}", e.what());
  }

 private:
  template <typename... Args>
  bool Fail(fmt::format_string<Args...> text, Args&&... args) {
    failure_ = InvalidInput("{}: {}", file_, fmt::format(text, std::forward<Args>(args)...));
    return false;
  }
  // A value that is no shard name: fine everywhere but in weight_map.
  bool Value(const char* what) {
    if (depth_ == 0) return Fail("is {}, not an object", what);
    if (section_ != "weight_map") return true;
    if (depth_ == 1) return Fail("weight_map is {}, not an object", what);
    return Fail("weight_map of tensor '{}' is {}, not the name of a shard", key_, what);
  }
  bool Deeper() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return Fail("is nested deeper than {} levels", kMaxJsonDepth);
  }
  bool Shallower() {
    --depth_;
    return true;
  }

  const std::string& file_;
  CheckpointIndex* index_;
  Status failure_;
  int depth_ = 0;
  bool has_map_ = false;
  std::string section_;  // name at the top level
  std::string key_;      // name inside it
  std::unordered_set<std::string> sections_, tensors_;
};

// "name": "value" with the library's escaping.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

Result<CheckpointIndex> ParseIndex(std::string_view json, const std::string& file) {
  CheckpointIndex index;
  IndexEvents events(file, &index);
  BLOCKSCALE_RETURN_IF_ERROR(ParseJsonEvents(json, file, events, events.failure()));
  if (!events.has_map())
    return InvalidInput("{}: has no object 'weight_map'; this is no safetensors index", file);
  return index;
}

std::string SerializeIndex(uint64_t total_size,
                           std::vector<std::pair<std::string, std::string>> weight_map) {
  std::sort(weight_map.begin(), weight_map.end());
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_size);
  const char* separator = "\n";
  for (const auto& [tensor, shard] : weight_map) {
    text += fmt::format("{}    {}: {}", separator, Quoted(tensor), Quoted(shard));
    separator = ",\n";
  }
  return text + (weight_map.empty() ? "}\n}\n" : "\n  }\n}\n");
}

}  // namespace blockscale
