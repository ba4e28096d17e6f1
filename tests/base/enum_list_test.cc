#include "base/enum_list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "checkpoint/dtype.h"
#include "model/families.h"
#include "model/tensor_class.h"
#include "numeric/format.h"
#include "numeric/scheme.h"
#include "runtime/loading_contract.h"

namespace blockscale {
namespace {

// Every list must give each member one name, one id, and a way back from the name.
template <typename Enum, typename Parse, size_t kCount>
void ExpectConsistent(const std::array<Enum, kCount>& all, Parse parse) {
  std::set<std::string> names;
  std::set<int> ids;
  for (const Enum value : all) {
    EXPECT_FALSE(NameOf(value).empty());
    names.emplace(NameOf(value));
    ids.insert(static_cast<int>(value));
    ASSERT_TRUE(parse(NameOf(value)).has_value()) << NameOf(value);
    EXPECT_EQ(*parse(NameOf(value)), value);
  }
  EXPECT_EQ(names.size(), kCount);
  EXPECT_EQ(ids.size(), kCount);
  EXPECT_FALSE(parse("no such name").has_value());
  EXPECT_FALSE(parse("").has_value());
}

TEST(EnumList, EveryListIsConsistent) {
  ExpectConsistent(AllDType(), ParseDType);
  ExpectConsistent(AllFormat(), ParseFormat);
  ExpectConsistent(AllScheme(), ParseScheme);
  ExpectConsistent(AllFamily(), ParseFamily);
  ExpectConsistent(AllTensorClass(), ParseTensorClass);
  ExpectConsistent(AllRuntime(), ParseRuntime);
}

// The layout of every file depends on this order; ids are append-only.
TEST(EnumList, DTypesKeepTheOrderOfTheReferenceWriter) {
  const char* order[] = {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
                         "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                         "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
                         "C64",     "F64",     "I64",     "U64"};
  ASSERT_EQ(AllDType().size(), std::size(order));
  for (size_t i = 0; i < std::size(order); ++i) EXPECT_EQ(NameOf(AllDType()[i]), order[i]);
}

}  // namespace
}  // namespace blockscale
