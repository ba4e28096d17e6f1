#include "verify/quality_report.h"

#include <gtest/gtest.h>

#include <cmath>

namespace blockscale {
namespace {

TEST(SqnrDb, IsTwentyDecibelsForATenth) {
  EXPECT_NEAR(SqnrDb(0.1), 20.0, 1e-12);
  EXPECT_NEAR(SqnrDb(0.0085), 41.41, 0.005);
  EXPECT_TRUE(std::isinf(SqnrDb(0)));
}

TEST(QualityReport, SummarisesAndListsEveryMatrix) {
  const std::vector<MatrixQuality> matrices = {{.name = "a",
                                                .rows = 1,
                                                .columns = 2,
                                                .relative_rmse = 0.1,
                                                .sqnr_db = 20,
                                                .max_half_steps = 0.5,
                                                .zero_rows = 1},
                                               {.name = "b",
                                                .rows = 3,
                                                .columns = 4,
                                                .relative_rmse = 0.3,
                                                .sqnr_db = 10,
                                                .max_half_steps = 1,
                                                .clipped = 5},
                                               {.name = "c\"", .sqnr_db = INFINITY}};
  const std::string text = WithMatrices({{"summary", QualitySummaryJson(matrices)}}, matrices);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["summary"]["relative_rmse"]["worst"], "b");
  EXPECT_EQ(json["summary"]["relative_rmse"]["median"], 0.1);
  EXPECT_NEAR(json["summary"]["relative_rmse"]["mean"], 0.4 / 3, 1e-15);
  EXPECT_EQ(json["summary"]["max_half_steps"], 1.0);
  EXPECT_EQ(json["summary"]["zero_rows"], 1);
  EXPECT_EQ(json["summary"]["clipped"], 5);
  ASSERT_EQ(json["matrices"].size(), 3u);
  EXPECT_EQ(json["matrices"][0]["relative_rmse"], 0.1);
  EXPECT_TRUE(json["matrices"][2]["sqnr_db"].is_null());
  EXPECT_EQ(json["matrices"][2]["name"], "c\"");
}

TEST(QualityReport, OfNothingHasNulls) {
  const auto json = nlohmann::json::parse(WithMatrices({{"summary", QualitySummaryJson({})}}, {}));
  EXPECT_TRUE(json["summary"]["relative_rmse"]["max"].is_null());
  EXPECT_EQ(json["matrices"].size(), 0u);
}

}  // namespace
}  // namespace blockscale
