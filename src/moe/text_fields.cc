#include "moe/text_fields.h"

#include <charconv>

#include "base/status.h"

namespace blockscale {

Result<std::vector<TextField>> SplitFields(std::string_view text) {
  std::vector<TextField> fields;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size() && !text.empty(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')' && --depth < 0) break;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    const std::string_view field = text.substr(start, i - start);
    if (field.empty()) return InvalidInput("'{}' has an empty field; write NAME=VALUE,...", text);
    const size_t equals = field.find('=');
    const bool named = equals != field.npos && field.substr(0, equals).find('(') == field.npos;
    fields.push_back({field.substr(0, named ? equals : field.npos),
                      named ? field.substr(equals + 1) : std::string_view()});
    start = i + 1;
  }
  if (depth != 0) return InvalidInput("'{}' has a bracket without its other half", text);
  return fields;
}

Result<std::vector<float>> ParseFloats(const TextField& field) {
  std::vector<float> values;
  std::string_view rest = field.value;
  while (true) {
    const size_t colon = rest.find(':');
    const std::string_view one = rest.substr(0, colon);
    float value = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), value);
    if (error != std::errc() || end != one.data() + one.size())
      return InvalidInput("{}={}: '{}' is no number", field.name, field.value, one);
    values.push_back(value);
    if (colon == rest.npos) return values;
    rest.remove_prefix(colon + 1);
  }
}

Result<uint64_t> ParseCount(const TextField& field, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const char* last = field.value.data() + field.value.size();
  const auto [end, error] = std::from_chars(field.value.data(), last, value);
  if (error != std::errc() || end != last || value < least || value > most)
    return InvalidInput("{}={}: not a whole number from {} to {}", field.name, field.value, least,
                        most);
  return value;
}

}  // namespace blockscale
