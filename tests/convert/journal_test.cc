#include "convert/journal.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/temp_folder.h"

namespace blockscale {
namespace {

ConversionState SomeState() {
  return {.int8_range = "127",
          .recipe = RecipeJson(RecipeFor("int8-channel")),
          .source = {.path = "/some/where",
                     .config_digest = "c",
                     .index_digest = "i",
                     .files = {{"a.safetensors", 10, 123456789}, {"b.safetensors", 20, -1}}},
          .shards = {{.name = "a.safetensors",
                      .bytes = 77,
                      .digest = "d",
                      .matrices = {{.name = "odd \"name\".weight",
                                    .rows = 3,
                                    .columns = 5,
                                    .relative_rmse = 0.1 / 3,
                                    .sqnr_db = 0,
                                    .max_half_steps = 0.99999994,
                                    .zero_rows = 1,
                                    .from = "fp8-block",
                                    .to = "int8-channel",
                                    .inexact_blocks = 3}}}}};
}

TEST(Journal, WhatItWritesItReads) {
  testing::TempFolder folder;
  Journal journal(PosixFileSystem(), folder.path(), SomeState());
  FinishedShard exact{.name = "b.safetensors", .bytes = 1, .digest = "e"};
  exact.matrices.push_back({.name = "m", .rows = 1, .columns = 1});
  ASSERT_TRUE(journal.AddShard(exact).ok());
  const auto read =
      ParseConversionState(testing::ReadFile(folder / kStateFileName), "conversion_state.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(FirstDifference(read->source, SomeState().source), "");
  ASSERT_EQ(read->shards.size(), 2u);
  const MatrixQuality& matrix = read->shards[0].matrices[0];
  EXPECT_EQ(matrix.name, "odd \"name\".weight");
  EXPECT_EQ(matrix.relative_rmse, 0.1 / 3);  // every bit
  EXPECT_EQ(matrix.max_half_steps, 0.99999994);
  EXPECT_EQ(matrix.from, "fp8-block");
  EXPECT_EQ(matrix.to, "int8-channel");
  EXPECT_EQ(matrix.inexact_blocks, 3u);
  EXPECT_EQ(read->recipe, SomeState().recipe);
  EXPECT_EQ(matrix.sqnr_db, SqnrDb(0.1 / 3));
  EXPECT_EQ(read->shards[1].matrices[0].sqnr_db, std::numeric_limits<double>::infinity());
}

TEST(Journal, RefusesNumbersThatAreNotWhole) {
  testing::TempFolder folder;
  ASSERT_TRUE(Journal(PosixFileSystem(), folder.path(), SomeState()).Save().ok());
  const std::string good = testing::ReadFile(folder / kStateFileName);
  ASSERT_TRUE(ParseConversionState(good, "f").ok());
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"123456789", "1.5"},
                                 {"123456789", "9.2e19"},
                                 {"\"size\": 10", "\"size\": -1"},
                                 {"\"bytes\":77", "\"bytes\":7.7e30"},
                                 {"\"bytes\":77", "\"bytes\":\"77\""},
                                 {",3,5,", ",3.0,5,"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    const auto state = ParseConversionState(bad, "f");
    ASSERT_FALSE(state.ok()) << to;
    EXPECT_NE(state.status().message().find("damaged"), std::string::npos);
  }
}

TEST(Journal, NamesTheFirstDifference) {
  const auto difference = [](auto change) {
    SourceFingerprint now = SomeState().source;
    change(now);
    return FirstDifference(SomeState().source, now);
  };
  EXPECT_NE(difference([](auto& s) { s.path = "/x"; }).find("/x"), std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.config_digest = "x"; }).find("config.json"),
            std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.index_digest = "x"; }).find("index"), std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.files.pop_back(); }).find("had 2 shards and has 1"),
            std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.files[1].name = "z"; }).find("become z"), std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.files[1].size = 21; }).find("had 20 bytes and has 21"),
            std::string::npos);
  EXPECT_NE(difference([](auto& s) { s.files[0].modified_ns = 0; }).find("time stamp"),
            std::string::npos);
  EXPECT_EQ(difference([](auto&) {}), "");
}

}  // namespace
}  // namespace blockscale
