// Who may run a layer: the choice, and the reason for each that is not chosen.

#include "moe/select.h"

#include <gtest/gtest.h>

#include "backends/all.h"
#include "moe/external_kernels.h"

namespace blockscale {
namespace {

Selection Select(std::string_view text, Device device, std::string_view forced = {}) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  const auto selection = SelectBackend(*spec, device, AllBackends(), forced);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  return *selection;
}

const Verdict& Row(const Selection& selection, std::string_view name) {
  for (const Verdict& verdict : selection.table)
    if (verdict.name == name) return verdict;
  ADD_FAILURE() << name;
  return selection.table.front();
}

std::string Chosen(const Selection& selection) {
  return selection.chosen ? selection.table[*selection.chosen].name : "";
}

TEST(Select, KimiK3) {
  const Selection sm120 = Select("kimi-k3,ep=32:7", Device::kSm120);
  EXPECT_EQ(Chosen(sm120), "flashinfer-cutlass");
  EXPECT_NE(Row(sm120, "flashinfer-cutlass").reason.find("#4460"), std::string::npos);
  EXPECT_NE(Row(sm120, "flashinfer-cutlass").reason.find("SGLang does not choose"),
            std::string::npos);
  EXPECT_TRUE(Row(sm120, "marlin").runs);
  EXPECT_NE(Row(sm120, "marlin").reason.find("the fallback"), std::string::npos);
  EXPECT_EQ(Row(sm120, "trtllm-gen").reason, "it runs on sm100 and sm103, not on sm120");
  EXPECT_EQ(Chosen(Select("kimi-k3", Device::kSm90)), "marlin");
  EXPECT_TRUE(Row(Select("kimi-k3", Device::kSm100), "trtllm-gen").runs);
  EXPECT_FALSE(Row(Select("kimi-k3", Device::kSm100), "deepgemm-mega").runs);
}

TEST(Select, MiniMaxOnKunlun) {
  EXPECT_EQ(
      Chosen(Select("minimax-m2,weights=int8-channel,inputs=int8-token", Device::kKunlunP800)),
      "kunlun");
  const Selection fp8 = Select("minimax-m2", Device::kKunlunP800);
  EXPECT_FALSE(fp8.chosen);
  EXPECT_NE(Row(fp8, "kunlun").reason.find("--to int8-channel"), std::string::npos);
}

TEST(Select, MegaMoeOfNvfp4) {
  const char* layer =
      "hidden=7168,intermediate=2048,weights=nvfp4,inputs=nvfp4,recipe=deepgemm-mega";
  const Selection sm100 = Select(layer, Device::kSm100);
  EXPECT_TRUE(Row(sm100, "deepgemm-mega").runs);
  EXPECT_FALSE(Row(sm100, "flashinfer-cutlass").runs);
  EXPECT_NE(
      Row(Select("hidden=7424,intermediate=2048,weights=nvfp4,inputs=nvfp4,recipe=deepgemm-mega",
                 Device::kSm100),
          "deepgemm-mega")
          .reason.find("no multiple of 512"),
      std::string::npos);
}

TEST(Select, ThisMachineRunsTheCpuBackend) {
  EXPECT_TRUE(IsCpu(ThisDevice()));
  const Selection here = Select("kimi-k3,ep=32:7", ThisDevice());
  EXPECT_EQ(Chosen(here), "cpu");
  EXPECT_TRUE(Row(here, "reference").runs);
  for (const Verdict& verdict : here.table)
    if (verdict.external) {
      EXPECT_FALSE(verdict.runs) << verdict.name;
    }
}

TEST(Select, TheOracleIsChosenOnlyByName) {
  EXPECT_EQ(Chosen(Select("weights=fp16,inputs=bf16", ThisDevice())), "");
  EXPECT_EQ(Chosen(Select("weights=fp16,inputs=bf16", ThisDevice(), "reference")), "reference");
}

TEST(Select, AForcedBackendThatCannotRunIsAnError) {
  const MoeSpec spec = *ParseMoeSpec("kimi-k3");
  EXPECT_EQ(
      SelectBackend(spec, Device::kSm120, AllBackends(), "trtllm-gen").status().message(),
      "backend trtllm-gen was asked for and refuses: it runs on sm100 and sm103, not on sm120");
  EXPECT_NE(SelectBackend(spec, Device::kSm120, AllBackends(), "cutlass")
                .status()
                .message()
                .find("there are cpu, reference, flashinfer-cutlass"),
            std::string::npos);
}

// Every refusal and every note is a sentence about this layer, on every chip.
TEST(Select, EveryVerdictHasItsReason) {
  for (const char* text :
       {"kimi-k3", "minimax-m2", "gpt-oss-20b", "weights=nvfp4,inputs=nvfp4",
        "weights=bf16,inputs=bf16,activation=relu2", "weights=int4-group,inputs=bf16",
        "weights=mxfp8,inputs=mxfp8", "weights=int8-channel,inputs=int8-token"})
    for (const Device device : AllDevice())
      for (const Verdict& verdict : Select(text, device).table) {
        if (!verdict.runs) {
          EXPECT_GT(verdict.reason.size(), 15u) << text << verdict.name;
        }
        EXPECT_EQ(verdict.external, !verdict.wants.empty());
      }
}

}  // namespace
}  // namespace blockscale
