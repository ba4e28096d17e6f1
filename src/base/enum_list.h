// One list makes one family of things. A list is an X-macro whose rows start with (enumerator, id,
// wire name); BLOCKSCALE_ENUM_LIST turns it into the enum, its names and its parser, so that no
// second list can disagree with the first.
//
//   #define BLOCKSCALE_DTYPES(X) X(kBool, 0, "BOOL", 8) X(kU8, 4, "U8", 8)
//   BLOCKSCALE_ENUM_LIST(DType, BLOCKSCALE_DTYPES)
//   -> enum class DType; NameOf(DType); ParseDType(string_view) -> optional; AllDType() -> array
//
// Ids are append-only and there is no sentinel member. Files, JSON and flags speak names.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#define BLOCKSCALE_ENUM_ROW(enumerator, id, name, ...) enumerator = id,
#define BLOCKSCALE_ENUM_CASE(enumerator, id, name, ...) \
  case Enum::enumerator:                                \
    return name;
#define BLOCKSCALE_ENUM_VALUE(enumerator, id, name, ...) Enum::enumerator,

#define BLOCKSCALE_ENUM_LIST(EnumName, LIST)                                 \
  enum class EnumName { LIST(BLOCKSCALE_ENUM_ROW) };                         \
  constexpr std::string_view NameOf(EnumName value) {                        \
    using Enum = EnumName;                                                   \
    switch (value) { LIST(BLOCKSCALE_ENUM_CASE) }                            \
    return {};                                                               \
  }                                                                          \
  constexpr auto All##EnumName() {                                           \
    using Enum = EnumName;                                                   \
    return std::to_array<Enum>({LIST(BLOCKSCALE_ENUM_VALUE)});               \
  }                                                                          \
  constexpr std::optional<EnumName> Parse##EnumName(std::string_view name) { \
    for (EnumName value : All##EnumName())                                   \
      if (NameOf(value) == name) return value;                               \
    return std::nullopt;                                                     \
  }
