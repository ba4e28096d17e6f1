#include "verify/quality_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

MatrixQuality Matrix(const std::string& name, double rmse) {
  return {.name = name, .rows = 2, .columns = 3, .relative_rmse = rmse, .sqnr_db = SqnrDb(rmse)};
}

TEST(PlaceOf, ReadsLayerExpertAndPart) {
  const TensorPlace place = PlaceOf("model.layers.3.block_sparse_moe.experts.17.w1.weight");
  EXPECT_EQ(place.layer, 3);
  EXPECT_EQ(place.expert, 17);
  EXPECT_EQ(place.part, "w1");
  EXPECT_EQ(PlaceOf("model.layers.3.self_attn.q_proj.weight").part, "q_proj");
  EXPECT_FALSE(PlaceOf("model.layers.3.self_attn.q_proj.weight").expert);
  EXPECT_FALSE(PlaceOf("lm_head.weight").layer);
  EXPECT_FALSE(PlaceOf("layers.x.weight").layer);
  EXPECT_FALSE(PlaceOf("layers.99999999999.weight").layer);
  EXPECT_FALSE(PlaceOf("layers.-1.weight").layer);
  EXPECT_FALSE(PlaceOf("layers.3x.weight").layer);
}

TEST(QualityPage, DrawsACellForEachExpertAndTakesTheWorst) {
  const std::vector<MatrixQuality> matrices = {
      Matrix("model.layers.0.mlp.experts.0.w1.weight", 0.001),
      Matrix("model.layers.0.mlp.experts.0.w2.weight", 0.009),
      Matrix("model.layers.1.mlp.experts.2.w1.weight", 0.002),
      Matrix("model.layers.1.self_attn.q_proj.weight", 0.003), Matrix("other.weight", 0.004)};
  const std::string page = RenderQualityPage({.title = "t", .matrices = &matrices});
  EXPECT_EQ(Count(page, "class=\"cell\""), 3u);
  EXPECT_THAT(page, HasSubstr("experts.0.w2.weight: 0.9000 %</title>"));
  EXPECT_THAT(page, Not(HasSubstr("experts.0.w1.weight: 0.1000 %</title>")));
  EXPECT_EQ(Count(page, "class=\"bar\""), 48u);
  EXPECT_LT(page.find("<code>model.layers.0.mlp.experts.0.w2"), page.find("<code>other.weight"));
}

TEST(QualityPage, IsSelfContainedAndEscapes) {
  const std::vector<MatrixQuality> matrices = {Matrix("a<script>\"&.weight", 0.5)};
  const std::string page = RenderQualityPage({.title = "<t>",
                                              .facts = {{"<l>", "<v>"}},
                                              .matrices = &matrices,
                                              .alerts = {{"<o>", "<m>"}}});
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, HasSubstr("a&lt;script&gt;&quot;&amp;.weight"));
  for (const char* raw : {"<t>", "<l>", "<v>", "<o>", "<m>"})
    EXPECT_THAT(page, Not(HasSubstr(raw)));
}

TEST(QualityPage, DoesNotFloodWithAlerts) {
  const std::vector<MatrixQuality> none;
  QualityPage page{.title = "t", .matrices = &none};
  for (int i = 0; i < 100; ++i) page.alerts.emplace_back("a", "b");
  EXPECT_EQ(Count(RenderQualityPage(page), "<code>a</code>"), 100u);
  EXPECT_THAT(RenderQualityPage(page), Not(HasSubstr(" more<")));
  for (int i = 0; i < 47764; ++i) page.alerts.emplace_back("a", "b");
  EXPECT_EQ(Count(RenderQualityPage(page), "<code>a</code>"), 100u);
  EXPECT_THAT(RenderQualityPage(page), HasSubstr("and 47764 more<"));
}

TEST(QualityPage, DrawingsHaveTitles) {
  const std::vector<MatrixQuality> matrices = {Matrix("layers.0.experts.0.w1.weight", 0.001),
                                               Matrix("layers.1.q_proj.weight", 0.003)};
  const std::string page = RenderQualityPage({.title = "t", .matrices = &matrices});
  EXPECT_EQ(Count(page, "<svg id="), 3u);
  EXPECT_EQ(Count(page, "role=\"img\""), 3u);
  EXPECT_THAT(page, HasSubstr("<title>Relative RMSE by layer and expert</title>"));
}

TEST(QualityPage, StandsWithoutMatrices) {
  const std::vector<MatrixQuality> none;
  const std::string page = RenderQualityPage({.title = "t", .matrices = &none});
  EXPECT_THAT(page, HasSubstr("0 matrices"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  const std::vector<MatrixQuality> same = {Matrix("a.weight", 0), Matrix("b.weight", 0)};
  EXPECT_THAT(RenderQualityPage({.title = "t", .matrices = &same}), HasSubstr("exact"));
}

}  // namespace
}  // namespace blockscale
