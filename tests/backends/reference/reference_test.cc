// The oracle against sums written out here, on data whose sums are exact.

#include "backends/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backends/reference/requantise.h"

namespace blockscale {
namespace {

using reference::Interval;

MoeSpec TinySpec(const char* text) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *spec;
}

void PutBf16(std::vector<std::byte>* out, float value) {
  const uint16_t code = BF16::Encode(value);
  out->push_back(static_cast<std::byte>(code & 255));
  out->push_back(static_cast<std::byte>(code >> 8));
}

// A BF16 layer of small integers, and its output by nested loops.
struct IntegerLayer {
  MoeSpec spec;
  std::vector<float> w13, w2, b13, b2, x;  // as stored
  std::vector<int32_t> ids;
  std::vector<float> weights;

  IntegerLayer(const char* text, size_t tokens, unsigned seed) : spec(TinySpec(text)) {
    std::mt19937 random(seed);
    const auto fill = [&](size_t count) {
      std::vector<float> values(count);
      for (float& v : values) v = static_cast<int>(random() % 5) - 2;
      return values;
    };
    const size_t e = spec.local_experts();
    w13 = fill(e * spec.fc1_rows() * spec.hidden);
    w2 = fill(e * spec.hidden * spec.local_intermediate());
    x = fill(tokens * spec.hidden);
    if (spec.biases) {
      b13 = fill(e * spec.fc1_rows());
      b2 = fill(e * spec.hidden);
    }
    for (size_t i = 0; i < tokens * spec.top_k; ++i) {
      ids.push_back(static_cast<int>(random() % (spec.experts + 1)) - 1);
      weights.push_back(static_cast<int>(random() % 4) * 0.5f);
    }
  }

  std::unique_ptr<LayerWeights> Weights() const {
    StackedWeights stacked;
    for (const float v : w13) PutBf16(&stacked.w13_codes, v);
    for (const float v : w2) PutBf16(&stacked.w2_codes, v);
    stacked.b13 = b13;
    stacked.b2 = b2;
    auto made = MakeStackedWeights(spec, std::move(stacked));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }

  double Hidden(size_t token, size_t local, uint32_t n) const {
    const uint32_t inner = spec.local_intermediate();
    const auto sum = [&](uint32_t row) {
      double s = b13.empty() ? 0 : b13[local * spec.fc1_rows() + row];
      for (uint32_t k = 0; k < spec.hidden; ++k)
        s += x[token * spec.hidden + k] * w13[(local * spec.fc1_rows() + row) * spec.hidden + k];
      return s;
    };
    if (!spec.activation.gated()) return std::pow(std::max(sum(n), 0.0), 2);
    const bool pairs = spec.order == GateUpOrder::kInterleaved;
    const bool up_first = spec.order == GateUpOrder::kUpGate;
    const double gate = sum(pairs ? 2 * n : up_first ? inner + n : n);
    const double up = sum(pairs ? 2 * n + 1 : up_first ? n : inner + n);
    return gate / (1 + std::exp(-gate)) * up;
  }

  double Output(size_t token, uint32_t k) const {
    const uint32_t inner = spec.local_intermediate();
    double out = 0;
    for (uint32_t s = 0; s < spec.top_k; ++s) {
      const int64_t local = int64_t{ids[token * spec.top_k + s]} - spec.first_expert();
      if (local < 0 || local >= spec.local_experts()) continue;
      double y = b2.empty() || spec.tp_rank != 0 ? 0 : b2[local * spec.hidden + k];
      for (uint32_t n = 0; n < inner; ++n)
        y += Hidden(token, local, n) * w2[(local * spec.hidden + k) * inner + n];
      out += weights[token * spec.top_k + s] * y;
    }
    return out;
  }
};

Expected Expect(const IntegerLayer& layer, const Accumulation& accumulation = {}) {
  const ScaledRows inputs = QuantiseRows(RowScheme::kBf16, {}, layer.x.data(),
                                         layer.x.size() / layer.spec.hidden, layer.spec.hidden);
  const LayerCall call{&inputs, layer.ids, layer.weights, {}};
  const auto weights = layer.Weights();
  auto expected = MakeReferenceOracle()->Expect(layer.spec, *weights, call, accumulation);
  EXPECT_TRUE(expected.ok()) << expected.status().message();
  return std::move(*expected);
}

constexpr char kSizes[] =
    "experts=4,top-k=3,hidden=32,intermediate=16,weights=bf16,inputs=bf16,"
    "output=f32,recipe=exact";

TEST(Reference, ExactRecipeEqualsNestedLoops) {
  for (const char* more : {"", ",order=gate-up", ",order=interleaved", ",biases=yes", ",ep=2:1",
                           ",tp=2:1,biases=yes", ",activation=relu2"}) {
    const IntegerLayer layer((std::string(kSizes) + more).c_str(), 5, 11);
    const Expected expected = Expect(layer);
    for (size_t t = 0; t < 5; ++t)
      for (uint32_t k = 0; k < 32; ++k) {
        const size_t at = t * 32 + k;
        const double right = layer.Output(t, k);
        EXPECT_NEAR(expected.value[at], right, 1e-6 * std::fabs(right)) << more;
        EXPECT_LE(expected.low[at], right) << more;
        EXPECT_GE(expected.high[at], right) << more;
        EXPECT_LE(expected.high[at] - expected.low[at], 2e-3 * (std::fabs(right) + 200)) << more;
      }
  }
}

// ReLU2 of integers is exact in every step: the range closes to a point but for its own slack.
TEST(Reference, RowsWithoutALocalExpertAreZero) {
  IntegerLayer layer((std::string(kSizes) + ",ep=2:0").c_str(), 2, 3);
  layer.ids = {2, 3, -1, 0, -1, 3};
  const Expected expected = Expect(layer);
  for (uint32_t k = 0; k < 32; ++k) {
    EXPECT_EQ(expected.low[k], 0);
    EXPECT_EQ(expected.high[k], 0);
  }
  EXPECT_TRUE(expected.finite_row[0]);
}

TEST(Reference, DuplicateIdsCountEachSlot) {
  IntegerLayer layer(kSizes, 1, 3);
  layer.ids = {1, 1, -1};
  layer.weights = {0.5f, 1.5f, 9};
  const Expected twice = Expect(layer);
  layer.ids = {1, -1, -1};
  layer.weights = {2, 9, 9};
  const Expected once = Expect(layer);
  for (uint32_t k = 0; k < 32; ++k) EXPECT_NEAR(twice.value[k], once.value[k], 1e-3);
}

TEST(Reference, NonFiniteRowsAreMarkedAndAlone) {
  IntegerLayer layer(kSizes, 3, 5);
  layer.ids = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  layer.weights.assign(9, 1.0f);
  const Expected whole = Expect(layer);
  layer.x[40] = NAN;
  const Expected broken = Expect(layer);
  EXPECT_TRUE(broken.finite_row[0]);
  EXPECT_FALSE(broken.finite_row[1]);
  EXPECT_TRUE(broken.finite_row[2]);
  for (uint32_t k = 0; k < 32; ++k) EXPECT_EQ(broken.value[k], whole.value[k]);
}

TEST(Reference, RefusesCallsThatDoNotFit) {
  IntegerLayer layer(kSizes, 1, 3);
  layer.ids[0] = 4;
  const ScaledRows inputs = QuantiseRows(RowScheme::kBf16, {}, layer.x.data(), 1, 32);
  const auto weights = layer.Weights();
  const auto oracle = MakeReferenceOracle();
  EXPECT_EQ(oracle->Expect(layer.spec, *weights, {&inputs, layer.ids, layer.weights, {}}, {})
                .status()
                .message(),
            "token 0 slot 0: expert id 4 is out of range; ids are 0 to 3, or -1 for none");
}

// For points, what comes back is what the definition gives.
TEST(Requantise, PointsFollowTheDefinition) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const GlobalScale global{GlobalScale::Kind::kMultiplier, 0x1p-9f};
  for (const RowScheme scheme : AllRowScheme()) {
    std::vector<float> values(256);
    for (float& x : values) x = normal(random);
    std::vector<Interval> row;
    for (const float x : values) row.push_back(reference::Point(x));
    reference::Requantise(scheme, global, row);
    const ScaledRows rows = QuantiseRows(scheme, global, values.data(), 1, 256);
    DecodeRow(rows, 0, values.data());
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_NEAR(row[i].value, values[i], 1e-6 * std::fabs(values[i])) << NameOf(scheme) << i;
      EXPECT_LE(row[i].low, values[i] + 1e-7 * std::fabs(values[i])) << NameOf(scheme);
      EXPECT_GE(row[i].high, values[i] - 1e-7 * std::fabs(values[i])) << NameOf(scheme);
    }
  }
}

// Whatever values lie in the ranges, what the definition makes of them lies in the result.
TEST(Requantise, RangesHoldEveryOutcome) {
  std::mt19937 random(10);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> part(0, 1);
  const GlobalScale global{GlobalScale::Kind::kMultiplier, 0x1p-9f};
  for (const RowScheme scheme : AllRowScheme()) {
    std::vector<Interval> row(128);
    for (Interval& x : row) {
      const double value = normal(random), radius = 0.02 * std::fabs(normal(random));
      x = {value - radius, value, value + radius};
    }
    row[17] = {3.4, 3.5, 3.6};  // the largest: for MXFP8 either of two scales
    const auto ranges = row;
    reference::Requantise(scheme, global, row);
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<float> values;
      for (const Interval& x : ranges)
        values.push_back(static_cast<float>(x.low + part(random) * (x.high - x.low)));
      const ScaledRows rows = QuantiseRows(scheme, global, values.data(), 1, 128);
      DecodeRow(rows, 0, values.data());
      for (size_t i = 0; i < 128; ++i) {
        EXPECT_LE(row[i].low, values[i] + 1e-6 * std::fabs(values[i])) << NameOf(scheme) << i;
        EXPECT_GE(row[i].high, values[i] - 1e-6 * std::fabs(values[i])) << NameOf(scheme) << i;
      }
    }
  }
}

}  // namespace
}  // namespace blockscale
