// A recipe from anywhere: either an error in one line, or rules that the library's own check lets
// pass and that survive being written and read again.

#include <cstddef>
#include <cstdint>

#include "blockscale/recipe.h"
#include "fuzz_expectations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockscale;
  const auto recipe = ParseRecipe({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!recipe.ok()) {
    fuzz::ExpectClearError(recipe.status(), "fuzz.json");
    return 0;
  }
  fuzz::Expect(CheckRecipe(*recipe).ok(), "a recipe was read that may not be used");
  const std::string text = RecipeJson(*recipe);
  const auto again = ParseRecipe(text, "again");
  fuzz::Expect(again.ok(), "a recipe that was written could not be read");
  fuzz::Expect(RecipeJson(*again) == text, "writing changed the recipe");
  return 0;
}
