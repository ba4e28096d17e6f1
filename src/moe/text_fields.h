// "a=1,b=swiglu(x=2,y=3)": the text form of a layer and of an activation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "blockscale/status.h"

namespace blockscale {

struct TextField {
  std::string_view name;   // before the first '='; all of the field where there is none
  std::string_view value;  // after it
};

// Cuts at commas outside brackets. "" has no fields; an error names an empty field or a bracket
// without its other half. The views point into `text`.
Result<std::vector<TextField>> SplitFields(std::string_view text);

// "7:7:10"; "inf" is a number. An error names the field.
Result<std::vector<float>> ParseFloats(const TextField& field);

// A whole number in [least, most].
Result<uint64_t> ParseCount(const TextField& field, uint64_t least, uint64_t most);

// "a, b, c": the names of a family of things.
template <typename Values>
std::string NamesOfAll(const Values& values) {
  std::string names;
  for (const auto value : values) {
    names += names.empty() ? "" : ", ";
    names += NameOf(value);
  }
  return names;
}

}  // namespace blockscale
