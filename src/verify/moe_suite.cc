#include "verify/moe_suite.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace blockscale {
namespace {

constexpr std::byte kPoison{0xFF};  // NaN in every output type
constexpr size_t kGuard = 256;
constexpr int kRuns = 3;

MoeSpec Spec(const std::string& text, const Activation& activation) {
  auto spec = ParseMoeSpec(text);
  BLOCKSCALE_CHECK(spec.ok(), "{}", spec.status().message());
  spec->activation = activation;
  return *spec;
}

void AddSmoke(const Activation& activation, uint64_t seed, std::vector<MoeCase>* cases) {
  const MoeSpec usual = Spec("weights=mxfp4,inputs=mxfp8", activation);
  for (const size_t tokens : {1, 2, 8, 32})
    for (const CaseRouting routing : AllCaseRouting())
      cases->push_back({usual, tokens, routing, CaseRows::kFinite, seed});
  for (const CaseRows rows : {CaseRows::kNan, CaseRows::kInf})
    cases->push_back({usual, 8, CaseRouting::kUniform, rows, seed});
  for (const char* more :
       {"ep=2:0", "ep=2:1", "tp=2:1", "order=gate-up", "order=interleaved", "biases=yes",
        "biases=yes,tp=2:1", "output=f32", "output=fp16", "recipe=exact", "recipe=deepgemm-mega",
        "top-k=8", "hidden=288,intermediate=96"})
    cases->push_back({Spec(std::string("weights=mxfp4,inputs=mxfp8,") + more, activation), 8,
                      CaseRouting::kMasked, CaseRows::kFinite, seed});
  for (const char* formats :
       {"weights=bf16,inputs=bf16", "weights=fp8-block,inputs=fp8-token-128",
        "weights=fp8-channel,inputs=fp8-token", "weights=mxfp8,inputs=mxfp8",
        "weights=mxfp4,inputs=bf16", "weights=nvfp4,inputs=nvfp4", "weights=nvfp4,inputs=bf16",
        "weights=int8-channel,inputs=int8-token", "weights=int8-channel,inputs=int8-32",
        "weights=mxfp4,inputs=int8-32", "weights=int4-group,inputs=int8-token",
        "weights=int4-group,inputs=bf16", "weights=int4-group,weight-group=32,inputs=bf16"})
    for (const char* recipe : {"flashinfer-cutlass", "exact"}) {
      const MoeSpec spec = Spec(fmt::format("{},recipe={}", formats, recipe), activation);
      cases->push_back({spec, 8, CaseRouting::kUniform, CaseRows::kFinite, seed});
      cases->push_back({spec, 5, CaseRouting::kUniform, CaseRows::kNan, seed});
      cases->push_back({spec, 5, CaseRouting::kUniform, CaseRows::kInf, seed});
    }
}

void AddReal(const Activation& activation, uint64_t seed, std::vector<MoeCase>* cases) {
  const MoeSpec spec = Spec("kimi-k3,ep=32:7", activation);
  for (const size_t tokens : {1, 128})
    for (const CaseRouting routing : {CaseRouting::kUniform, CaseRouting::kMasked})
      cases->push_back({spec, tokens, routing, CaseRows::kFinite, seed});
  cases->push_back({spec, 128, CaseRouting::kUniform, CaseRows::kNan, seed});
  cases->push_back({spec, 128, CaseRouting::kUniform, CaseRows::kInf, seed});
}

bool SameData(const CaseData& a, const CaseData& b) {
  return a.inputs.codes == b.inputs.codes && a.inputs.scales == b.inputs.scales && a.ids == b.ids &&
         std::memcmp(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)) == 0;
}

// One token of a call as a call of its own.
CaseData Alone(const MoeSpec& spec, const CaseData& data, size_t token) {
  CaseData one = data;
  const size_t codes = data.inputs.code_bytes(), scales = data.inputs.scale_bytes();
  one.inputs.rows = 1;
  one.inputs.codes.assign(data.inputs.codes.begin() + token * codes,
                          data.inputs.codes.begin() + (token + 1) * codes);
  one.inputs.scales.assign(data.inputs.scales.begin() + token * scales,
                           data.inputs.scales.begin() + (token + 1) * scales);
  one.ids.assign(data.ids.begin() + token * spec.top_k,
                 data.ids.begin() + (token + 1) * spec.top_k);
  one.weights.assign(data.weights.begin() + token * spec.top_k,
                     data.weights.begin() + (token + 1) * spec.top_k);
  return one;
}

class CaseRun {
 public:
  CaseRun(const MoeCase& moe_case, const PreparedLayer& layer)
      : case_(moe_case), layer_(layer), data_(MakeCaseData(moe_case)) {}

  const CaseData& data() const { return data_; }
  const std::vector<std::byte>& output() const { return output_; }

  // Runs, and everything but the numbers.
  Status Run(CaseResult* result) {
    const size_t bytes = case_.tokens * OutputRowBytes(case_.spec);
    for (int run = 0; run < kRuns; ++run) {
      std::vector<std::byte> output(bytes + kGuard, kPoison);
      const auto start = std::chrono::steady_clock::now();
      BLOCKSCALE_ASSIGN_OR_RETURN(result->info, layer_.Run(data_.call(), output.data()));
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (run == 0) result->seconds = taken.count();
      for (size_t i = bytes; i < output.size(); ++i)
        if (output[i] != kPoison)
          return InvalidInput("byte {} behind the output changed", i - bytes);
      output.resize(bytes);
      if (run > 0 && output != output_)
        return InvalidInput("run {} gave other bits than run 0", run);
      output_ = std::move(output);
    }
    if (!SameData(data_, MakeCaseData(case_))) return InvalidInput("the run changed its inputs");
    return OkStatus();
  }

  // A token of the batch has the same bits without the others.
  Status RunAlone() const {
    const size_t row = OutputRowBytes(case_.spec), token = case_.tokens / 2;
    const CaseData one = Alone(case_.spec, data_, token);
    std::vector<std::byte> output(row, kPoison);
    const auto info = layer_.Run(one.call(), output.data());
    if (!info.ok()) return info.status();
    if (std::memcmp(output.data(), &output_[token * row], row) != 0)
      return InvalidInput("token {} alone has other bits than in the batch", token);
    return OkStatus();
  }

 private:
  const MoeCase& case_;
  const PreparedLayer& layer_;
  CaseData data_;
  std::vector<std::byte> output_;
};

CaseResult Failed(CaseResult result, std::string message) {
  result.status = CaseStatus::kFailed;
  result.message = std::move(message);
  return result;
}

CaseResult RunWith(const MoeCase& moe_case, const Backend& candidate, const Oracle& oracle,
                   const LayerWeights& weights) {
  CaseResult result{.moe_case = moe_case};
  const auto ended = [&](CaseStatus status, const Status& why) {
    result.status = status;
    result.message = why.message();
    return result;
  };
  const Status activation = candidate.HasActivation(moe_case.spec.activation);
  if (!activation.ok()) return ended(CaseStatus::kMissingActivation, activation);
  const Status supported = candidate.Supports(moe_case.spec);
  if (!supported.ok()) return ended(CaseStatus::kRefused, supported);
  const auto layer = candidate.Prepare(moe_case.spec, weights);
  if (!layer.ok()) return Failed(std::move(result), layer.status().message());
  CaseRun run(moe_case, **layer);
  const Status ran = run.Run(&result);
  if (!ran.ok()) return Failed(std::move(result), ran.message());
  const auto expected = oracle.Expect(moe_case.spec, weights, run.data().call(),
                                      candidate.accumulation(moe_case.spec));
  if (!expected.ok()) return Failed(std::move(result), expected.status().message());
  result.comparison = CompareOutput(moe_case.spec, *expected, run.output().data());
  if (!result.comparison.passed) return Failed(std::move(result), result.comparison.message);
  const Status alone = run.RunAlone();
  return alone.ok() ? result : Failed(std::move(result), alone.message());
}

}  // namespace

std::vector<MoeCase> CasesOf(Suite suite, const Activation& activation, uint64_t seed) {
  std::vector<MoeCase> cases;
  if (suite != Suite::kReal) AddSmoke(activation, seed, &cases);
  if (suite != Suite::kSmoke) AddReal(activation, seed, &cases);
  return cases;
}

CaseResult RunCase(const MoeCase& moe_case, const Backend& candidate, const Oracle& oracle) {
  return RunWith(moe_case, candidate, oracle, *MakeCaseWeights(moe_case.spec, moe_case.seed));
}

std::vector<CaseResult> RunSuite(const std::vector<MoeCase>& cases, const Backend& candidate,
                                 const Oracle& oracle,
                                 const std::function<void(const CaseResult&)>& done) {
  std::vector<CaseResult> results;
  CaseWeights weights;
  for (const MoeCase& moe_case : cases) {
    results.push_back(RunWith(moe_case, candidate, oracle, weights.Of(moe_case)));
    if (done) done(results.back());
  }
  return results;
}

}  // namespace blockscale
