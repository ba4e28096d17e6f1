// The harness that cannot be fooled: a backend with one fault at a time must be caught.

#include "verify/moe_suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference.h"
#include "base/status.h"

namespace blockscale {
namespace {

using Fault = std::function<void(const MoeSpec&, size_t tokens, std::vector<float>*)>;

// The CPU backend with its output spoilt.
class SpoiltLayer final : public PreparedLayer {
 public:
  SpoiltLayer(const MoeSpec& spec, std::unique_ptr<PreparedLayer> inner, Fault fault)
      : spec_(spec), inner_(std::move(inner)), fault_(std::move(fault)) {}
  Result<RunInfo> Run(const LayerCall& call, std::byte* output) const override {
    auto info = inner_->Run(call, output);
    std::vector<float> values(call.tokens() * spec_.hidden);
    LoadOutput(spec_.output, output, values.size(), values.data());
    if (call.tokens() > 1) fault_(spec_, call.tokens(), &values);
    StoreOutput(spec_.output, values.data(), values.size(), output);
    return info;
  }
  size_t bytes() const override { return inner_->bytes(); }

 private:
  MoeSpec spec_;
  std::unique_ptr<PreparedLayer> inner_;
  Fault fault_;
};

// The CPU backend given another layer than the one it was asked for.
class SpoiltBackend final : public Backend {
 public:
  SpoiltBackend(std::function<void(MoeSpec*)> change, Fault fault)
      : change_(std::move(change)), fault_(std::move(fault)) {}
  std::string_view name() const override { return "spoilt"; }
  Status Supports(const MoeSpec& spec) const override { return cpu_->Supports(spec); }
  Result<std::unique_ptr<PreparedLayer>> Prepare(const MoeSpec& spec,
                                                 const LayerWeights& weights) const override {
    MoeSpec other = spec;
    if (change_) change_(&other);
    auto layer = cpu_->Prepare(other, weights);
    if (!layer.ok() || !fault_) return layer;
    return std::unique_ptr<PreparedLayer>(
        std::make_unique<SpoiltLayer>(spec, std::move(*layer), fault_));
  }
  Accumulation accumulation(const MoeSpec& spec) const override { return cpu_->accumulation(spec); }

 private:
  std::unique_ptr<Backend> cpu_ = MakeCpuBackend();
  std::function<void(MoeSpec*)> change_;
  Fault fault_;
};

MoeCase Case(std::string_view text) {
  const auto parsed = ParseMoeCase(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

constexpr char kCase[] = "activation=situ,hidden=512;tokens=8";

CaseResult RunFault(std::function<void(MoeSpec*)> change, Fault fault) {
  return RunCase(Case(kCase), SpoiltBackend(std::move(change), std::move(fault)),
                 *MakeReferenceOracle());
}

TEST(MoeSuite, AWholeBackendPasses) {
  const CaseResult result = RunFault(nullptr, nullptr);
  EXPECT_EQ(result.status, CaseStatus::kPassed) << result.message;
  EXPECT_LE(result.comparison.worst, 1);
  EXPECT_GT(result.comparison.cosine, 0.99999);
}

// A backend without SiTU, and one that refuses SiTU layers for another reason.
class WithoutSitu final : public Backend {
 public:
  std::string_view name() const override { return "without-situ"; }
  Status HasActivation(const Activation& activation) const override {
    if (activation.kind != ActivationKind::kSitu) return OkStatus();
    return InvalidInput("it has no situ; use cpu");
  }
  Status Supports(const MoeSpec& spec) const override { return cpu_->Supports(spec); }
  Result<std::unique_ptr<PreparedLayer>> Prepare(const MoeSpec& spec,
                                                 const LayerWeights& weights) const override {
    return cpu_->Prepare(spec, weights);
  }
  Accumulation accumulation(const MoeSpec& spec) const override { return cpu_->accumulation(spec); }

 private:
  std::unique_ptr<Backend> cpu_ = MakeCpuBackend();
};

TEST(MoeSuite, AMissingActivationIsToldFromOtherRefusals) {
  const auto oracle = MakeReferenceOracle();
  const CaseResult missing = RunCase(Case(kCase), WithoutSitu(), *oracle);
  EXPECT_EQ(missing.status, CaseStatus::kMissingActivation);
  EXPECT_EQ(missing.message, "it has no situ; use cpu");
  const CaseResult refused = RunCase(Case("weights=fp16,inputs=bf16"), WithoutSitu(), *oracle);
  EXPECT_EQ(refused.status, CaseStatus::kRefused);
  EXPECT_EQ(RunCase(Case("top-k=2;tokens=2"), WithoutSitu(), *oracle).status, CaseStatus::kPassed);
}

TEST(MoeSuite, WrongFactorsAreCaught) {
  for (const float factor : {0.55f, 1.45f, 1.02f, -1.0f})
    EXPECT_EQ(RunFault(nullptr,
                       [&](const MoeSpec&, size_t, std::vector<float>* out) {
                         for (float& x : *out) x *= factor;
                       })
                  .status,
              CaseStatus::kFailed)
        << factor;
}

TEST(MoeSuite, OneWrongElementIsCaughtAndNamed) {
  const CaseResult result =
      RunFault(nullptr, [](const MoeSpec& spec, size_t, std::vector<float>* out) {
        (*out)[5 * spec.hidden + 77] += 1;
      });
  EXPECT_EQ(result.status, CaseStatus::kFailed);
  EXPECT_EQ(result.comparison.outside, 1u);
  EXPECT_EQ(result.comparison.token, 5u);
  EXPECT_EQ(result.comparison.column, 77u);
}

TEST(MoeSuite, WrongLayersAreCaught) {
  using Change = std::function<void(MoeSpec*)>;
  const std::pair<const char*, Change> faults[] = {
      {"other activation", [](MoeSpec* s) { s->activation = SwiGlu(); }},
      {"other parameters", [](MoeSpec* s) { s->activation = SiTU(4.0f, 20.0f); }},
      {"GPT-OSS's fixed parameters", [](MoeSpec* s) { s->activation = SwiGluOai(); }},
      {"unrounded recipe", [](MoeSpec* s) { s->recipe = IntermediateRecipe::kExact; }},
      {"weight before the activation",
       [](MoeSpec* s) { s->recipe = IntermediateRecipe::kDeepGemmMega; }},
  };
  for (const auto& [name, change] : faults)
    EXPECT_EQ(RunFault(change, nullptr).status, CaseStatus::kFailed) << name;
}

// Weights that lie: what they give differs from what the oracle sees.
class LyingWeights final : public LayerWeights {
 public:
  using Lie = std::function<void(uint32_t*, ExpertWeights*)>;
  LyingWeights(const LayerWeights& truth, Lie lie) : truth_(truth), lie_(std::move(lie)) {}
  Result<ExpertWeights> Expert(uint32_t local) const override {
    ExpertWeights unused;
    uint32_t which = local;
    lie_(&which, &unused);
    auto expert = truth_.Expert(which);
    if (expert.ok()) lie_(&which, &*expert);
    return expert;
  }

 private:
  const LayerWeights& truth_;
  Lie lie_;
};

TEST(MoeSuite, WrongWeightsAreCaught) {
  const MoeCase c = Case(kCase);
  const auto weights = MakeCaseWeights(c.spec, c.seed);
  const CaseData data = MakeCaseData(c);
  const auto cpu = MakeCpuBackend();
  const auto expected =
      MakeReferenceOracle()->Expect(c.spec, *weights, data.call(), cpu->accumulation(c.spec));
  ASSERT_TRUE(expected.ok());
  const std::pair<const char*, LyingWeights::Lie> lies[] = {
      {"gate and up swapped", [](uint32_t*, ExpertWeights* e) { std::swap(e->gate, e->up); }},
      {"one expert off",
       [](uint32_t* e, ExpertWeights* w) {
         if (!w->gate.codes) *e = (*e + 1) % 8;
       }},
      {"scales of the next row",
       [](uint32_t* e, ExpertWeights* w) {  // behind the last expert's there are none
         if (w->gate.codes && *e != 7) w->down.scales += w->down.spec.grid_columns(w->down.columns);
       }},
      {"halves taken for pairs",
       [](uint32_t*, ExpertWeights* e) {
         e->gate.first_row = 0, e->up.first_row = 1;
         e->gate.row_step = e->up.row_step = 2;
       }},
  };
  for (const auto& [name, lie] : lies) {
    const LyingWeights lying(*weights, lie);
    const auto layer = cpu->Prepare(c.spec, lying);
    ASSERT_TRUE(layer.ok());
    std::vector<std::byte> output(c.tokens * OutputRowBytes(c.spec));
    ASSERT_TRUE((*layer)->Run(data.call(), output.data()).ok());
    EXPECT_FALSE(CompareOutput(c.spec, *expected, output.data()).passed) << name;
  }
}

TEST(MoeSuite, StaleAndUnwrittenOutputsAreCaught) {
  const CaseResult stale =
      RunFault(nullptr, [](const MoeSpec& spec, size_t, std::vector<float>* out) {
        for (size_t k = 0; k < spec.hidden; ++k) (*out)[spec.hidden + k] = (*out)[k];
      });
  EXPECT_EQ(stale.status, CaseStatus::kFailed);
  const CaseResult unwritten =
      RunFault(nullptr, [](const MoeSpec&, size_t, std::vector<float>* out) { out->back() = NAN; });
  EXPECT_EQ(unwritten.status, CaseStatus::kFailed);
  EXPECT_EQ(unwritten.comparison.wrong_rows, 1u);
}

TEST(MoeSuite, CasesReadBack) {
  for (const Suite suite : AllSuite())
    for (const MoeCase& c : CasesOf(suite, SwiGluOai(), 9)) {
      const MoeCase back = Case(ToString(c));
      EXPECT_EQ(ToString(back), ToString(c));
      EXPECT_EQ(back.spec, c.spec);
    }
  EXPECT_FALSE(ParseMoeCase("kimi-k3;tokens=0").ok());
  EXPECT_FALSE(ParseMoeCase("kimi-k3;rows=odd").ok());
}

TEST(MoeSuite, TheReferenceAgreesWithItself) {
  const auto oracle = MakeReferenceOracle();
  const auto reference = MakeReferenceBackend();
  for (const CaseResult& result :
       RunSuite(CasesOf(Suite::kSmoke, SiTU(), 2), *reference, *oracle, nullptr))
    EXPECT_EQ(result.status, CaseStatus::kPassed)
        << ToString(result.moe_case) << ": " << result.message;
}

}  // namespace
}  // namespace blockscale
