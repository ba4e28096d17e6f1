// A layer's text form, its slices, and what is refused.

#include "moe/spec.h"

#include <gtest/gtest.h>

namespace blockscale {
namespace {

MoeSpec Parsed(std::string_view text) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? *spec : MoeSpec();
}

TEST(MoeSpec, KimiK3OnRank7Of32) {
  const MoeSpec spec = Parsed("kimi-k3,ep=32:7");
  EXPECT_EQ(spec.local_experts(), 28u);
  EXPECT_EQ(spec.first_expert(), 196u);
  EXPECT_EQ(spec.fc1_rows(), 6144u);
  EXPECT_EQ(spec.hidden, 3584u);
  EXPECT_EQ(spec.activation, SiTU());
  EXPECT_FALSE(spec.is_local(195));
  EXPECT_TRUE(spec.is_local(196));
  EXPECT_TRUE(spec.is_local(223));
  EXPECT_FALSE(spec.is_local(224));
  EXPECT_FALSE(spec.is_local(-1));
}

TEST(MoeSpec, TextRoundTrip) {
  for (const char* text :
       {"kimi-k3", "kimi-k3,ep=32:7,tp=2:1", "minimax-m2,recipe=exact", "gpt-oss-20b",
        "gpt-oss-120b",
        "weights=int4-group,weight-group=32,inputs=bf16,activation=swiglu(limit=1:2:3:4:5:6:7:8)",
        "activation=relu2,order=gate-up,output=f32,finalize=atomic,recipe=deepgemm-mega"}) {
    const MoeSpec spec = Parsed(text);
    EXPECT_EQ(Parsed(ToString(spec)), spec) << text;
  }
}

TEST(MoeSpec, GateAndUpRowsAreABijection) {
  for (const GateUpOrder order : AllGateUpOrder()) {
    MoeSpec spec;
    spec.order = order;
    std::vector<int> seen(spec.fc1_rows(), 0);
    for (uint32_t n = 0; n < spec.local_intermediate(); ++n) {
      ++seen[GateRow(spec, n)];
      ++seen[UpRow(spec, n)];
    }
    EXPECT_EQ(seen, std::vector<int>(spec.fc1_rows(), 1)) << NameOf(order);
  }
  MoeSpec spec;  // CUTLASS: [up; gate]
  EXPECT_EQ(UpRow(spec, 3), 3u);
  EXPECT_EQ(GateRow(spec, 3), 131u);
}

TEST(MoeSpec, RefusesWhatIsNoLayer) {
  const std::pair<const char*, const char*> cases[] = {
      {"experts=0", "experts=0: not a whole number from 1 to 16777216"},
      {"experts=4,top-k=5", "top-k is 5; it must be no more than the 4 experts and 32"},
      {"experts=64,top-k=33", "top-k is 33; it must be no more than the 64 experts and 32"},
      {"ep=3", "experts is 8, which ep of 3 does not divide; pad it or choose another"},
      {"ep=2:2", "rank 2 of ep=2 and rank 0 of tp=1: ranks count from 0"},
      {"hidden=100",
       "hidden is 100, which a group of inputs of 32 does not divide; pad it or choose "
       "another"},
      {"tp=8",
       "intermediate a rank is 16, which a group of inputs of 32 does not divide; pad it or "
       "choose another"},
      {"weights=fp5",
       "weights=fp5 is not known; there are f32, bf16, fp16, fp8-block, fp8-tensor, "
       "int8-channel, fp8-channel, mxfp8, mxfp4, nvfp4, int4-group"},
      {"weight-group=32", "weight-group=32 is for int4-group; mxfp4 has its own"},
      {"kimi",
       "'kimi' is no known layer and no NAME=VALUE; known layers are kimi-k3, minimax-m2, "
       "gpt-oss-20b, gpt-oss-120b"},
      {"biases=1", "biases=1: it is yes or no"},
      {"activation=situ(linear_beta=0)", "situ: linear_beta is 0; it must be a number above 0"},
  };
  for (const auto& [text, message] : cases) {
    const auto spec = ParseMoeSpec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().message(), message);
  }
  for (const char* text : {"x=1", "hidden", "hidden=-1", "hidden=1e3", ",", "ep=:", "ep=2:x"})
    EXPECT_FALSE(ParseMoeSpec(text).ok()) << text;
}

}  // namespace
}  // namespace blockscale
