#include "verify/moe_case.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/status.h"
#include "moe/routing.h"
#include "moe/text_fields.h"

namespace blockscale {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers with every compiler.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t count) { return Next() % count; }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }
  // Sum of twelve uniforms less six: normal enough, and no library's choice.
  float Normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

constexpr float kInputGlobal = 0x1p-9f;  // amax of about 5: 5 / 448 / 6

// The size of codes, root mean square.
float CodeSize(Format element) {
  switch (element) {
    case Format::kE2M1:
      return 2.8f;
    case Format::kE4M3:
      return 90;
    case Format::kInt8:
      return 73;
    case Format::kInt4:
      return 4.6f;
    default:
      return 1;
  }
}

void FillCodes(Format element, Random* random, std::vector<std::byte>* codes) {
  if (BitsOf(element) == 16) {
    for (size_t i = 0; i + 1 < codes->size(); i += 2) {
      const uint16_t code = BF16::Encode(random->Normal());
      std::memcpy(&(*codes)[i], &code, 2);
    }
    return;
  }
  for (std::byte& code : *codes) {
    code = static_cast<std::byte>(random->Below(256));
    if (element == Format::kE4M3 && (code & std::byte{0x7F}) == std::byte{0x7F})
      code = std::byte{1};
  }
}

void PutScale(const QuantSpec& spec, float scale, std::byte* at) {
  if (spec.scale == Format::kE8M0) {
    *at = static_cast<std::byte>(127 + std::lround(std::log2(scale)));
  } else if (spec.scale == Format::kUE4M3) {
    *at = static_cast<std::byte>(UE4M3::Encode(scale));
  } else if (spec.scale == Format::kBF16) {
    const uint16_t code = BF16::Encode(scale);
    std::memcpy(at, &code, 2);
  } else {
    std::memcpy(at, &scale, 4);
  }
}

// Scales around `size` over a factor of 8, no two neighbours alike.
void FillScales(const QuantSpec& spec, float size, Random* random, std::vector<std::byte>* scales) {
  const float base = spec.has_global() ? 1.0f : size;
  for (size_t at = 0; at < scales->size(); at += spec.scale_bytes())
    PutScale(spec, base * std::exp2(3 * random->Uniform() - 2), scales->data() + at);
}

struct Stack {
  std::vector<std::byte> codes, scales;
  std::vector<GlobalScale> global;
};

Stack MakeStack(const QuantSpec& spec, size_t experts, uint64_t rows, uint64_t columns, float gain,
                uint64_t seed) {
  Random random(seed);
  Stack stack;
  const float size = gain / (CodeSize(spec.element) * std::sqrt(static_cast<float>(columns)));
  stack.codes.resize(experts * rows * spec.row_bytes(columns));
  FillCodes(spec.element, &random, &stack.codes);
  if (spec.has_scales()) {
    stack.scales.resize(experts * spec.grid_rows(rows) * spec.grid_columns(columns) *
                        spec.scale_bytes());
    FillScales(spec, size, &random, &stack.scales);
  }
  for (size_t e = 0; spec.has_global() && e < experts; ++e)
    stack.global.push_back({GlobalScale::Kind::kMultiplier, size * (1 + random.Uniform())});
  return stack;
}

std::vector<float> MakeBiases(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> biases(count);
  for (float& bias : biases) bias = BF16::Decode(BF16::Encode(0.5f * random.Normal()));
  return biases;
}

std::vector<float> Logits(const MoeCase& c, Random* random) {
  std::vector<float> logits(c.tokens * c.spec.experts);
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t expert = i % c.spec.experts;
    logits[i] = random->Normal();
    if (c.routing == CaseRouting::kSkewed && expert < c.spec.top_k + 1u) logits[i] += 3;
    if (c.routing == CaseRouting::kEmpty && expert % 3 != 0) logits[i] -= 100;
  }
  return logits;
}

void Route(const MoeCase& c, Random* random, CaseData* data) {
  const RoutingSpec routing{.experts = c.spec.experts, .top_k = c.spec.top_k};
  const auto routed = RouteTokens(routing, Logits(c, random), {});
  BLOCKSCALE_CHECK(routed.ok(), "{}", routed.status().message());
  data->ids = routed->ids;
  data->weights = routed->weights;
  for (size_t i = 0; i < data->ids.size(); ++i) {
    const bool masked = c.routing == CaseRouting::kMasked && random->Below(4) == 0;
    const bool padding = c.routing == CaseRouting::kPadded && i / c.spec.top_k % 2 == 1;
    if (masked || padding) data->ids[i] = -1;
  }
}

}  // namespace

std::string ToString(const MoeCase& c) {
  return fmt::format("{};tokens={},routing={},rows={},seed={}", ToString(c.spec), c.tokens,
                     NameOf(c.routing), NameOf(c.rows), c.seed);
}

Result<MoeCase> ParseMoeCase(std::string_view text) {
  const size_t cut = text.find(';');
  MoeCase c;
  BLOCKSCALE_ASSIGN_OR_RETURN(c.spec, ParseMoeSpec(text.substr(0, cut)));
  if (cut == text.npos) return c;
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto fields, SplitFields(text.substr(cut + 1)));
  for (const TextField& field : fields) {
    if (field.name == "tokens") {
      BLOCKSCALE_ASSIGN_OR_RETURN(c.tokens, ParseCount(field, 1, 1 << 20));
    } else if (field.name == "seed") {
      BLOCKSCALE_ASSIGN_OR_RETURN(c.seed, ParseCount(field, 0, ~uint64_t{0}));
    } else if (field.name == "routing" && ParseCaseRouting(field.value)) {
      c.routing = *ParseCaseRouting(field.value);
    } else if (field.name == "rows" && ParseCaseRows(field.value)) {
      c.rows = *ParseCaseRows(field.value);
    } else {
      return InvalidInput(
          "'{}={}' is no field of a case; it has tokens, seed, routing ({}), rows "
          "({})",
          field.name, field.value, NamesOfAll(AllCaseRouting()), NamesOfAll(AllCaseRows()));
    }
  }
  return c;
}

CaseData MakeCaseData(const MoeCase& c) {
  Random random(c.seed * 3 + 1);
  CaseData data;
  data.intermediate_global = {GlobalScale::Kind::kMultiplier, kInputGlobal};
  Route(c, &random, &data);
  std::vector<float> x(c.tokens * c.spec.hidden);
  for (float& value : x) value = BF16::Decode(BF16::Encode(random.Normal()));
  for (size_t t = 0; t < c.tokens; ++t) {
    float& one = x[t * c.spec.hidden + random.Below(c.spec.hidden)];
    const bool padding = c.routing == CaseRouting::kPadded && t % 2 == 1;
    if (padding || (c.rows == CaseRows::kNan && t % 3 == 0))
      one = std::numeric_limits<float>::quiet_NaN();
    else if (c.rows == CaseRows::kInf && t % 3 == 0)
      one = t % 2 == 0 ? INFINITY : -INFINITY;
  }
  data.inputs =
      QuantiseRows(c.spec.inputs, data.intermediate_global, x.data(), c.tokens, c.spec.hidden);
  return data;
}

StackedWeights MakeCaseStack(const MoeSpec& spec, uint64_t seed, float fc1_gain) {
  const size_t experts = spec.local_experts();
  const QuantSpec quant = spec.weight_spec();
  Stack w13 = MakeStack(quant, experts, spec.fc1_rows(), spec.hidden, fc1_gain, seed * 3 + 2);
  Stack w2 = MakeStack(quant, experts, spec.hidden, spec.local_intermediate(), 1, seed * 3 + 3);
  StackedWeights weights;
  weights.w13_codes = std::move(w13.codes);
  weights.w13_scales = std::move(w13.scales);
  weights.w13_global = std::move(w13.global);
  weights.w2_codes = std::move(w2.codes);
  weights.w2_scales = std::move(w2.scales);
  weights.w2_global = std::move(w2.global);
  if (spec.biases) {
    weights.b13 = MakeBiases(experts * spec.fc1_rows(), seed * 3 + 4);
    weights.b2 = MakeBiases(experts * spec.hidden, seed * 3 + 5);
  }
  return weights;
}

std::unique_ptr<LayerWeights> MakeCaseWeights(const MoeSpec& spec, uint64_t seed, float fc1_gain) {
  auto made = MakeStackedWeights(spec, MakeCaseStack(spec, seed, fc1_gain));
  BLOCKSCALE_CHECK(made.ok(), "{}", made.status().message());
  return std::move(*made);
}

const LayerWeights& CaseWeights::Of(const MoeCase& c) {
  std::string name = fmt::format("{}/{}", ToString(c.spec), c.seed);
  if (name != made_for_) {
    weights_.reset();  // before the next: a real layer's are large
    weights_ = MakeCaseWeights(c.spec, c.seed);
  }
  made_for_ = std::move(name);
  return *weights_;
}

}  // namespace blockscale
