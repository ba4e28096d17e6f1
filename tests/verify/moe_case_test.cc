// Cases are the same for the same text and seed, and hold what their names promise.

#include "verify/moe_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

namespace blockscale {
namespace {

MoeCase Case(const std::string& text) {
  const auto parsed = ParseMoeCase(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

std::vector<float> Row(const CaseData& data, size_t token) {
  std::vector<float> row(data.inputs.columns);
  DecodeRow(data.inputs, token, row.data());
  return row;
}

TEST(MoeCase, SameTextSameData) {
  const CaseData a = MakeCaseData(Case("experts=8;tokens=9,seed=4"));
  const CaseData b = MakeCaseData(Case("experts=8;tokens=9,seed=4"));
  EXPECT_EQ(a.inputs.codes, b.inputs.codes);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.weights, b.weights);
  const CaseData other = MakeCaseData(Case("experts=8;tokens=9,seed=5"));
  EXPECT_NE(a.inputs.codes, other.inputs.codes);
}

TEST(MoeCase, RoutingsAreWhatTheyAreCalled) {
  const auto ids = [](const char* routing) {
    return MakeCaseData(Case(std::string("experts=24,top-k=4;tokens=60,routing=") + routing)).ids;
  };
  const auto counts = [](const std::vector<int32_t>& ids) {
    std::map<int32_t, int> count;
    for (const int32_t id : ids) ++count[id];
    return count;
  };
  EXPECT_EQ(counts(ids("uniform")).size(), 24u);
  const auto skewed = counts(ids("skewed"));
  int few = 0;
  for (int e = 0; e < 5; ++e) few += skewed.count(e) ? skewed.at(e) : 0;
  EXPECT_GT(few, 200);
  for (const auto& [id, count] : counts(ids("empty"))) EXPECT_EQ(id % 3, 0);
  const auto masked = counts(ids("masked"));
  EXPECT_GT(masked.at(-1), 30);
  EXPECT_LT(masked.at(-1), 90);
  const auto padded = ids("padded");
  for (size_t i = 0; i < padded.size(); ++i) EXPECT_EQ(padded[i] == -1, i / 4 % 2 == 1);
}

TEST(MoeCase, TokensChooseDistinctExperts) {
  const auto data = MakeCaseData(Case("experts=24,top-k=8;tokens=40"));
  for (size_t t = 0; t < 40; ++t) {
    const std::set<int32_t> chosen(&data.ids[8 * t], &data.ids[8 * t] + 8);
    EXPECT_EQ(chosen.size(), 8u);
  }
}

TEST(MoeCase, BrokenRowsAreEveryThird) {
  for (const char* inputs : {"bf16", "fp8-token", "int8-token"}) {
    const MoeCase c = Case(std::string("weights=bf16,inputs=") + inputs + ";tokens=9,rows=nan");
    const CaseData data = MakeCaseData(c);
    for (size_t t = 0; t < 9; ++t) {
      bool finite = true;
      for (const float x : Row(data, t)) finite &= std::isfinite(x);
      EXPECT_EQ(finite, t % 3 != 0) << inputs << t;
    }
  }
  const CaseData inf = MakeCaseData(Case("weights=bf16,inputs=bf16;tokens=4,rows=inf"));
  int infinities = 0;
  for (const float x : Row(inf, 3)) infinities += std::isinf(x) && x < 0;
  EXPECT_EQ(infinities, 1);
}

TEST(MoeCase, Fc1ReachesBeyondTheBends) {
  const MoeCase c = Case("experts=1,top-k=1,activation=situ;tokens=16");
  const auto weights = MakeCaseWeights(c.spec, 1);
  const auto expert = weights->Expert(0);
  ASSERT_TRUE(expert.ok());
  const CaseData data = MakeCaseData(c);
  double squares = 0, largest = 0;
  std::vector<float> w(c.spec.hidden);
  for (size_t t = 0; t < 16; ++t) {
    const auto x = Row(data, t);
    for (uint64_t n = 0; n < expert->up.rows; ++n) {
      DecodeMatrixRow(expert->up, n, w.data());
      double sum = 0;
      for (size_t k = 0; k < x.size(); ++k) sum += double{x[k]} * w[k];
      squares += sum * sum;
      largest = std::max(largest, std::fabs(sum));
    }
  }
  const double size = std::sqrt(squares / (16.0 * expert->up.rows));
  EXPECT_GT(size, 4);
  EXPECT_LT(size, 16);
  EXPECT_GT(largest, 25);
}

// No two neighbours alike: random powers of two that repeat would hide a mixed-up scale.
TEST(MoeCase, ScalesDiffer) {
  for (const char* formats :
       {"weights=nvfp4,inputs=bf16", "weights=fp8-block,inputs=bf16",
        "weights=int4-group,inputs=bf16", "weights=int8-channel,inputs=bf16"}) {
    const MoeCase c = Case(formats);
    const auto weights = MakeCaseWeights(c.spec, 1);
    const auto first = weights->Expert(0), second = weights->Expert(1);
    ASSERT_TRUE(first.ok() && second.ok());
    const size_t bytes = first->down.spec.scale_bytes();
    EXPECT_NE(std::memcmp(first->down.scales, second->down.scales, bytes), 0) << formats;
  }
}

}  // namespace
}  // namespace blockscale
