// The CPU backend: tiles as written down, bits that do not depend on threads, results in bound.

#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "backends/all.h"
#include "backends/cpu/activate.h"
#include "backends/cpu/expert_product.h"
#include "backends/reference/reference.h"
#include "moe/device.h"
#include "verify/moe_suite.h"

namespace blockscale {
namespace {

MoeCase Case(const char* text) {
  const auto parsed = ParseMoeCase(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

// Nested loops over the description in tile.h, not over the packer.
TEST(Tile, EveryCodeIsWhereTheHeaderSays) {
  for (const char* weights : {"mxfp4", "nvfp4", "mxfp8", "int8-channel", "bf16"}) {
    const MoeCase c = Case(fmt::format("weights={},experts=2,hidden=96,intermediate=96,"
                                       "inputs=bf16",
                                       weights)
                               .c_str());
    const auto layer = MakeCaseWeights(c.spec, 3);
    const auto expert = layer->Expert(1);
    ASSERT_TRUE(expert.ok());
    const MatrixRows& m = expert->down;
    const cpu::TileFormat format = cpu::TileFormatOf(m.spec);
    const size_t bits = static_cast<size_t>(BitsOf(format.element));
    std::vector<std::byte> tiles(2 * 3 * format.bytes());
    for (size_t b = 0; b < 2; ++b)
      cpu::PackBlock(m, format, b, tiles.data() + b * 3 * format.bytes());
    for (size_t row = 0; row < 128; ++row)
      for (size_t column = 0; column < 96; ++column) {
        const size_t per_line = 32 / bits, in_tile = column % 32;
        const size_t line = 4 * (in_tile / per_line) + row % 64 / 16;
        const size_t rest = in_tile % per_line, word = 2 * (row % 16) + rest % 2;
        const std::byte* at =
            tiles.data() + (row / 64 * 3 + column / 32) * format.bytes() + line * 64 + 2 * word;
        const uint32_t both = static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8;
        const uint32_t code = (both >> (rest / 2 * bits)) & ((1u << bits) - 1);
        uint32_t stored = 0;
        if (row < m.rows) {
          const std::byte* codes = m.code_row(row);
          for (size_t i = 0; i < bits; ++i) {
            const size_t bit = column * bits + i;
            stored |= ((static_cast<uint32_t>(codes[bit / 8]) >> (bit % 8)) & 1) << i;
          }
        }
        ASSERT_EQ(code, stored) << weights << " row " << row << " column " << column;
      }
  }
}

// The sum of an MXFP8 x MXFP4 group is exact, so that groups whose codes span much are split.
TEST(Operand, WideGroupsAreSplitAndAddUp) {
  ScaledRows rows{.scheme = RowScheme::kMxfp8, .rows = 1, .columns = 64};
  rows.codes.assign(64, std::byte{0x38});  // 1
  rows.scales.assign(2, std::byte{127});
  EXPECT_TRUE(cpu::OperandOf(rows, 0).rest_groups.empty());
  for (size_t i = 32; i < 60; ++i) rows.codes[i] = std::byte{0x7E};  // 448
  rows.codes[63] = std::byte{1};                                     // 2^-9
  const cpu::Operand operand = cpu::OperandOf(rows, 0);
  EXPECT_EQ(operand.limbs, 1u);
  ASSERT_EQ(operand.rest_groups, std::vector<uint32_t>{1});
  std::vector<float> row(64);
  DecodeRow(rows, 0, row.data());
  for (size_t i = 0; i < 64; ++i) {
    const float rest = i < 32 ? 0 : BF16::Decode(operand.rest[i - 32]);
    EXPECT_EQ(BF16::Decode(operand.bf16[i]) + rest, row[i]);
  }
}

TEST(Operand, ThreeLimbsHoldAnFp32) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(64);
  for (float& x : values) x = normal(random);
  const cpu::Operand operand = cpu::OperandOf(values.data(), 64);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(BF16::Decode(operand.bf16[i]) +
                  (BF16::Decode(operand.bf16[64 + i]) + BF16::Decode(operand.bf16[128 + i])),
              values[i]);
}

TEST(Operand, WhatIsNotFiniteStaysInFp32) {
  const std::vector<float> values = {1, INFINITY, NAN, 0};
  std::vector<float> row(32, 1.0f);
  row[7] = INFINITY;
  EXPECT_EQ(cpu::OperandOf(row.data(), 32).plain, row);
  row[7] = 0x1p120f;
  EXPECT_EQ(cpu::OperandOf(row.data(), 32).plain, row);
}

TEST(CpuActivate, EveryActivationAgainstDoublePrecision) {
  std::vector<float> gate(64), up(64), out(64);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 8);
  for (const ActivationKind kind : AllActivationKind()) {
    const Activation activation = MakeActivation(kind);
    for (int trial = 0; trial < 50; ++trial) {
      for (size_t i = 0; i < 64; ++i) {
        gate[i] = normal(random);
        up[i] = normal(random);
      }
      cpu::ActivateJob job{kind, IntermediateRecipe::kExact, activation.at(0)};
      cpu::Activate(job, gate.data(), up.data(), 64, out.data());
      for (size_t i = 0; i < 64; ++i) {
        const double right = ApplyActivation(kind, activation.at(0), gate[i], up[i]);
        // GELU's 1 + erf cancels: its error is relative to the gate.
        const bool gelu = kind == ActivationKind::kGeGlu || kind == ActivationKind::kGeGluTanh;
        const double size = gelu ? std::fabs(gate[i] * up[i]) : std::fabs(right);
        EXPECT_NEAR(out[i], right, kActivationUlps * 0x1p-24 * size + 1e-30)
            << NameOf(kind) << " " << gate[i] << " " << up[i];
      }
    }
  }
}

std::vector<std::byte> Output(const MoeCase& c, const Backend& backend,
                              const LayerWeights& weights) {
  const CaseData data = MakeCaseData(c);
  const auto layer = backend.Prepare(c.spec, weights);
  EXPECT_TRUE(layer.ok()) << layer.status().message();
  std::vector<std::byte> output(c.tokens * OutputRowBytes(c.spec));
  EXPECT_TRUE((*layer)->Run(data.call(), output.data()).ok());
  return output;
}

TEST(CpuBackend, SameBitsForAnyNumberOfThreads) {
  const MoeCase c = Case("activation=situ;tokens=17");
  const auto weights = MakeCaseWeights(c.spec, 1);
  const auto backend = MakeCpuBackend();
  const auto usual = Output(c, *backend, *weights);
  for (const int threads : {1, 2, 5}) {
    oneapi::tbb::task_arena arena(threads);
    arena.execute([&] { EXPECT_EQ(Output(c, *backend, *weights), usual) << threads; });
  }
}

TEST(CpuBackend, WholeSmokeSuite) {
  const auto oracle = MakeReferenceOracle();
  const auto backend = MakeCpuBackend();
  for (const Activation& activation : {SwiGlu(), SwiGluOai(), SiTU()})
    for (const CaseResult& result :
         RunSuite(CasesOf(Suite::kSmoke, activation, 1), *backend, *oracle, nullptr)) {
      EXPECT_EQ(result.status, CaseStatus::kPassed)
          << ToString(result.moe_case) << ": " << result.message;
      EXPECT_EQ(result.info.backend, "cpu");
    }
}

TEST(CpuBackend, PreparedWeightsAreHardlyLarger) {
  for (const char* weights : {"mxfp4", "mxfp8", "nvfp4", "bf16", "int8-channel", "fp8-channel"}) {
    const MoeCase c = Case(fmt::format("weights={},experts=2,hidden=1024,intermediate=512,"
                                       "inputs=bf16",
                                       weights)
                               .c_str());
    const auto layer = MakeCpuBackend()->Prepare(c.spec, *MakeCaseWeights(c.spec, 1));
    ASSERT_TRUE(layer.ok());
    const QuantSpec spec = c.spec.weight_spec();
    const auto bytes = [&](uint64_t rows, uint64_t columns) {
      return rows * spec.row_bytes(columns) +
             spec.grid_rows(rows) * spec.grid_columns(columns) * spec.scale_bytes();
    };
    const double packed = 2.0 * (bytes(1024, 1024) + bytes(1024, 512));
    EXPECT_LE((*layer)->bytes(), 1.02 * packed) << weights;
  }
}

TEST(CpuBackend, SlowerKernelsPassToo) {
  const auto oracle = MakeReferenceOracle();
  for (const char* kernel : {"portable", "avx2"}) {
    if (ThisDevice() == Device::kCpu && std::string(kernel) == "avx2") continue;
    const auto backend = MakeCpuBackend({.kernel = kernel});
    for (const CaseResult& result :
         RunSuite(CasesOf(Suite::kSmoke, SiTU(), 3), *backend, *oracle, nullptr)) {
      EXPECT_EQ(result.status, CaseStatus::kPassed)
          << ToString(result.moe_case) << ": " << result.message;
      EXPECT_EQ(result.info.kernel, kernel);
    }
  }
}

// What the environment asks for runs, or the layer is refused; options come first.
TEST(CpuBackend, TheEnvironmentNamesAKernel) {
  constexpr const char* kVariable = "BLOCKSCALE_CPU_KERNEL";
  const char* outside = std::getenv(kVariable);
  const std::string before = outside != nullptr ? outside : "";
  const MoeCase c = Case("weights=mxfp4,inputs=mxfp8");
  setenv(kVariable, "portable", 1);
  const CaseResult result = RunCase(c, *MakeCpuBackend(), *MakeReferenceOracle());
  EXPECT_EQ(result.info.kernel, "portable") << result.message;
  setenv(kVariable, "avx1024", 1);
  const auto backend = MakeCpuBackend();
  EXPECT_TRUE(MakeCpuBackend({.kernel = "portable"})->Supports(c.spec).ok());
  setenv(kVariable, before.c_str(), 1);  // "" is as good as none
  const std::string message = backend->Supports(c.spec).message();
  EXPECT_THAT(message, testing::StartsWith("the cpu backend's kernel 'avx1024' is not known or"));
  EXPECT_THAT(message, testing::EndsWith("portable: set BLOCKSCALE_CPU_KERNEL to one of them, or "
                                         "leave it unset for the fastest"));
  const auto weights = MakeCaseWeights(c.spec, 1);
  EXPECT_EQ(backend->Prepare(c.spec, *weights).status().message(), message);
}

TEST(CpuBackend, SaysWhichKernelRan) {
  const Device device = ThisDevice();
  const std::pair<const char*, const char*> kernels[] = {
      {"weights=mxfp4,inputs=mxfp8", "avx512-bf16"},
      {"weights=mxfp4,inputs=int8-32", "avx512-vnni"},
      {"weights=int8-channel,inputs=int8-token", "avx512-vnni"},
      {"weights=nvfp4,inputs=int8-token", "avx512-bf16"},  // no kernel for INT8 rows
      {"weights=fp8-block,inputs=fp8-token-128", "avx512-bf16"},
  };
  for (const auto& [text, kernel] : kernels) {
    const CaseResult result = RunCase(Case(text), *MakeCpuBackend(), *MakeReferenceOracle());
    EXPECT_EQ(result.status, CaseStatus::kPassed) << text << ": " << result.message;
    EXPECT_EQ(result.info.kernel, device == Device::kCpuAvx512 ? kernel
                                  : device == Device::kCpuAvx2 ? "avx2"
                                                               : "portable")
        << text;
  }
}

// A layer of INT8 rows is a layer of its own: MXFP8's oracle must not accept it.
TEST(CpuBackend, Int8RowsAreAnotherLayer) {
  const MoeCase mx = Case("weights=mxfp4,inputs=mxfp8,output=f32,hidden=512");
  const auto weights = MakeCaseWeights(mx.spec, 1);
  MoeCase int8 = mx;
  int8.spec.inputs = RowScheme::kInt8Group;
  const auto output = Output(int8, *MakeCpuBackend(), *weights);
  const CaseData data = MakeCaseData(mx);
  const auto expected = MakeReferenceOracle()->Expect(mx.spec, *weights, data.call(), {});
  ASSERT_TRUE(expected.ok());
  EXPECT_FALSE(CompareOutput(mx.spec, *expected, output.data()).passed);
}

// Slots of tokens of another rank, of nobody, and twice of one expert.
TEST(CpuBackend, DuplicatesCountAndStrangersDoNot) {
  const MoeCase c = Case("ep=2:1,output=f32;tokens=1");
  const auto weights = MakeCaseWeights(c.spec, 1);
  const auto layer = MakeCpuBackend()->Prepare(c.spec, *weights);
  ASSERT_TRUE(layer.ok());
  CaseData data = MakeCaseData(c);
  const auto run = [&](std::vector<int32_t> ids, std::vector<float> slot_weights) {
    std::vector<float> out(c.spec.hidden, NAN);
    const LayerCall call{&data.inputs, ids, slot_weights, {}};
    const auto info = (*layer)->Run(call, reinterpret_cast<std::byte*>(out.data()));
    EXPECT_TRUE(info.ok());
    return out;
  };
  EXPECT_EQ(run({5, 5}, {1, 1}), run({5, -1}, {2, 7}));
  EXPECT_EQ(run({0, -1}, {1, 1}), std::vector<float>(c.spec.hidden, 0.0f));
  EXPECT_EQ(run({3, 6}, {1, 1}), run({-1, 6}, {1, 1}));
}

TEST(AllBackends, ByName) {
  EXPECT_EQ((*BackendNamed("cpu"))->name(), "cpu");
  EXPECT_EQ((*BackendNamed("reference"))->name(), "reference");
  EXPECT_EQ(BackendNamed("CPU").status().message(),
            "backend 'CPU' is not in this build; there are cpu, reference");
  EXPECT_EQ(AllBackends().front()->name(), "cpu");
}

TEST(CpuBackend, RefusesWithTheReason) {
  const auto message = [](const char* text) {
    return MakeCpuBackend()->Supports(*ParseMoeSpec(text)).message();
  };
  EXPECT_EQ(
      message("weights=fp16,inputs=bf16"),
      "weights are fp16; the cpu backend takes bf16 and the quantised schemes: convert with --to "
      "bf16");
  EXPECT_NE(message("hidden=272,inputs=bf16,weights=bf16").find("272"), std::string::npos);
  const MoeSpec spec = *ParseMoeSpec("kimi-k3");
  EXPECT_FALSE(MakeCpuBackend({.kernel = "no-such"})->Supports(spec).ok());
}

}  // namespace
}  // namespace blockscale
