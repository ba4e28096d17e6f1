#include "convert/plan.h"

#include <gtest/gtest.h>

#include "model/synth.h"
#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

// The real M2.7 by its headers: the numbers that the whole project is measured by.
TEST(Plan, OfMiniMaxM27IsExactToTheByte) {
  testing::TempFolder folder;
  SynthOptions options{.output = folder / "m27", .sparse = true};
  const auto made = SynthesizeCheckpoint(PosixFileSystem(), FullSize(options));
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "m27");
  ASSERT_TRUE(checkpoint.ok());
  const auto plan = MakeConversionPlan(*checkpoint, RecipeFor("int8-channel"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->matrices.size(), 47'864u);
  EXPECT_EQ(plan->shards.size(), 125u);
  EXPECT_EQ(plan->source_bytes, 230'121'630'720u);
  EXPECT_EQ(plan->output_bytes, 230'458'974'208u);
  EXPECT_EQ(plan->tensor_count(), 96'103u);
}

TEST(Plan, PlacesEveryTensorInsideItsFileWithoutOverlap) {
  testing::TempFolder folder;
  testing::WriteSample(folder.path());
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  const auto plan = MakeConversionPlan(*checkpoint, RecipeFor("int8-channel"));
  ASSERT_TRUE(plan.ok());
  for (const PlannedShard& shard : plan->shards) {
    std::map<uint64_t, uint64_t> ranges;  // begin -> end
    for (const PlannedItem& item : shard.items) {
      if (item.matrix == nullptr) {
        if (item.copy.info->bytes() > 0)
          ranges[item.offset] = item.offset + item.copy.info->bytes();
        continue;
      }
      const OutputMatrix& matrix = *item.matrix;
      ranges[matrix.codes_offset] = matrix.codes_offset + matrix.rows * matrix.columns;
      ranges[matrix.scales_offset] = matrix.scales_offset + 4 * matrix.rows;
    }
    uint64_t expected = shard.header.data_start;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, expected);
      expected = end;
    }
    EXPECT_EQ(expected, shard.header.file_bytes());
    EXPECT_EQ(shard.header_bytes.size(), shard.header.data_start);
  }
}

}  // namespace
}  // namespace blockscale
