// Activations against golden values from outside, and their text form.

#include "moe/activation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace blockscale {
namespace {

double Apply(const Activation& activation, double gate, double up) {
  return ApplyActivation(activation.kind, activation.at(0), gate, up);
}

struct Golden {
  double gate, up, value;
};

// Reference values with exact tanh, computed apart from this project (issue text, FlashInfer's
// formula). They are given to 7 or 8 digits.
TEST(Activation, SituGolden) {
  for (const Golden& g : {Golden{1, 1, 0.7158178},
                          {-1, 2, -0.5258289},
                          {4, 25, 56.9593195},
                          {10, -30, -82.2458215},
                          {100, 100, 99.93293},
                          {0, 1, 0}})
    EXPECT_NEAR(Apply(SiTU(), g.gate, g.up), g.value, 5e-8 + 1e-7 * std::fabs(g.value)) << g.gate;
}

TEST(Activation, GptOssSwiGluGolden) {
  for (const Golden& g :
       {Golden{1, 1, 1.6915915}, {-1, 2, -0.4626127}, {10, -10, -41.9997188}, {8, 8, 55.999625}})
    EXPECT_NEAR(Apply(SwiGluOai(), g.gate, g.up), g.value, 5e-8 + 1e-7 * std::fabs(g.value))
        << g.gate;
}

TEST(Activation, SwiGluClampsGateAboveOnlyAndUpOnBothSides) {
  const Activation limited = SwiGlu(1.0f, 0.0f, 7.0f);
  EXPECT_EQ(Apply(limited, 100, 1), Apply(limited, 7, 1));
  EXPECT_NE(Apply(limited, -8, 1), Apply(limited, -7, 1));
  EXPECT_EQ(Apply(limited, 1, 100), Apply(limited, 1, 7));
  EXPECT_EQ(Apply(limited, 1, -100), Apply(limited, 1, -7));
}

TEST(Activation, SwiGluStepClampsAfterTheSigmoid) {
  const Activation step = SwiGluStep();
  EXPECT_EQ(Apply(step, 100, 1), 7);
  EXPECT_DOUBLE_EQ(Apply(step, 1, -9), -7 / (1 + std::exp(-1.0)));
}

TEST(Activation, UngatedOnesIgnoreUp) {
  EXPECT_EQ(Apply(MakeActivation(ActivationKind::kRelu2), 3, 99), 9);
  EXPECT_EQ(Apply(MakeActivation(ActivationKind::kRelu2), -3, 99), 0);
  EXPECT_DOUBLE_EQ(Apply(MakeActivation(ActivationKind::kSilu), 2, 99), 2 / (1 + std::exp(-2.0)));
  EXPECT_EQ(Apply(MakeActivation(ActivationKind::kIdentity), -5, 99), -5);
  for (const ActivationKind kind : AllActivationKind())
    EXPECT_EQ(IsGated(kind), Apply(MakeActivation(kind), 1, 2) != Apply(MakeActivation(kind), 1, 3))
        << NameOf(kind);
}

TEST(Activation, GeluForms) {
  // scipy: 0.5 * x * (1 + erf(x / sqrt(2))) at 1 is 0.8413447460685429.
  EXPECT_NEAR(Apply(MakeActivation(ActivationKind::kGeGlu), 1, 2), 2 * 0.8413447460685429, 1e-7);
  EXPECT_NEAR(Apply(MakeActivation(ActivationKind::kGeGluTanh), 1, 2), 2 * 0.8411919906082768,
              1e-7);
}

TEST(Activation, NanGoesThroughClamps) {
  for (const ActivationKind kind : AllActivationKind()) {
    EXPECT_TRUE(std::isnan(Apply(MakeActivation(kind), NAN, 1))) << NameOf(kind);
    if (IsGated(kind)) {
      EXPECT_TRUE(std::isnan(Apply(MakeActivation(kind), 1, NAN))) << NameOf(kind);
    }
  }
}

// What an interval's bound rests on: Up never falls, Gate falls to one lowest place and rises.
TEST(Activation, GateFallsThenRises) {
  std::vector<Activation> all = {SwiGluOai(), SwiGlu(0.5f, 0.0f, 0.25f), SiTU(0.1f, 0.1f)};
  for (const ActivationKind kind : AllActivationKind()) all.push_back(MakeActivation(kind));
  for (const Activation& activation : all) {
    const auto p = activation.at(0);
    const double lowest = GateLowestAt(activation.kind, p);
    for (double x = -30; x < 30; x += 0.01) {
      const double here = ActivationGate(activation.kind, p, x);
      const double next = ActivationGate(activation.kind, p, x + 0.01);
      if (x + 0.01 <= lowest) {
        EXPECT_GE(here, next - 1e-12) << ToString(activation) << x;
      }
      if (x >= lowest) {
        EXPECT_LE(here, next + 1e-12) << ToString(activation) << x;
      }
      EXPECT_LE(ActivationUp(activation.kind, p, x), ActivationUp(activation.kind, p, x + 0.01));
    }
  }
}

TEST(Activation, TextRoundTrip) {
  for (const ActivationKind kind : AllActivationKind()) {
    const auto parsed = ParseActivation(ToString(MakeActivation(kind)));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, MakeActivation(kind));
  }
  const Activation mixed = SwiGlu(1.702f, 1.0f, PerExpert({7, kNoLimit, 10}));
  EXPECT_EQ(ToString(mixed), "swiglu(alpha=1.702,beta=1,limit=7:inf:10)");
  EXPECT_EQ(*ParseActivation(ToString(mixed)), mixed);
  EXPECT_EQ(*ParseActivation("swiglu-oai"), SwiGluOai());
  EXPECT_EQ(*ParseActivation("swiglu-oai(limit=10)"), SwiGlu(1.702f, 1.0f, 10.0f));
}

TEST(Activation, TextErrorsNameWhatThereIs) {
  EXPECT_EQ(
      ParseActivation("situu").status().message(),
      "activation 'situu' is not known; there are swiglu, situ, swiglu-step, geglu, geglu-tanh, "
      "relu2, silu, identity, swiglu-oai");
  EXPECT_EQ(ParseActivation("situ(alpha=1)").status().message(),
            "activation 'situ' has no parameter 'alpha'");
  for (const char* text : {"", "(", "situ(", "situ()x", "situ(gate_beta)", "situ(gate_beta=)",
                           "situ(gate_beta=1,,linear_beta=2)", "situ(gate_beta=1:)", "relu2)"})
    EXPECT_FALSE(ParseActivation(text).ok()) << text;
}

TEST(Activation, ValidateRefusesWhatIsNoFunction) {
  EXPECT_TRUE(ValidateActivation(SwiGluOai(), 4).ok());
  EXPECT_TRUE(ValidateActivation(SwiGlu(1.0f, -1.0f), 4).ok());
  EXPECT_FALSE(ValidateActivation(SwiGlu(0.0f), 4).ok());
  EXPECT_FALSE(ValidateActivation(SwiGlu(1.0f, 0.0f, -7.0f), 4).ok());
  EXPECT_FALSE(ValidateActivation(SiTU(NAN), 4).ok());
  EXPECT_FALSE(ValidateActivation(SiTU(kNoLimit), 4).ok());
  EXPECT_EQ(ValidateActivation(SiTU(PerExpert({1, 2, 3})), 4).message(),
            "situ: gate_beta has 3 values; give 1 or 4, one for each local expert");
  EXPECT_EQ(SiTU(PerExpert({1, 2, 3})).at(2)[0], 3);
}

}  // namespace
}  // namespace blockscale
