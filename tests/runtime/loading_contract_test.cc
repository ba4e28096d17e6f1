// `check` against good checkpoints and against everything that would load silently wrong.

#include "runtime/loading_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // NOLINT

constexpr uint64_t kHidden = 8, kInner = 4, kHeads = 2, kHeadDim = 4;

std::string ConfigText(const std::string& quantization) {
  return R"({"architectures":["MiniMaxM2ForCausalLM"],"model_type":"minimax_m2","hidden_size":8,
    "intermediate_size":4,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":4,
    "num_local_experts":2,"quantization_config":)" +
         quantization + "}";
}

std::string Int8Quantization(
    const std::string& targets = R"(["Linear"])",
    const std::string& ignore =
        R"(["lm_head","model.layers.0.block_sparse_moe.gate","re:.*\\.gate$"])",
    const std::string& type = "int") {
  return R"({"quant_method":"compressed-tensors","format":"int-quantized","quantization_status":"compressed",
    "config_groups":{"group_0":{"targets":)" +
         targets + R"(,
    "weights":{"num_bits":8,"type":")" +
         type + R"(","symmetric":true,"strategy":"channel","dynamic":false},
    "input_activations":{"num_bits":8,"type":")" +
         type + R"(","symmetric":true,"strategy":"token","dynamic":true}}},
    "ignore":)" +
         ignore + "}";
}

using Tensors = std::vector<TestTensor>;

void AddInt8(Tensors& tensors, const std::string& module, uint64_t rows, uint64_t columns) {
  tensors.push_back({module + ".weight", "I8", {rows, columns}, std::string(rows * columns, '\1')});
  tensors.push_back(
      {module + ".weight_scale", "F32", {rows, 1}, FloatBytes(std::vector<float>(rows, 0.01f))});
}

Tensors GoodTensors() {
  Tensors tensors = {
      {"model.embed_tokens.weight", "BF16", {4, kHidden}, std::string(8 * kHidden, 'e')},
      {"lm_head.weight", "BF16", {4, kHidden}, std::string(8 * kHidden, 'l')},
      {"model.layers.0.block_sparse_moe.gate.weight",
       "F32",
       {2, kHidden},
       std::string(8 * kHidden, '\0')}};
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"})
    AddInt8(tensors, std::string("model.layers.0.self_attn.") + part, kHeads * kHeadDim, kHidden);
  for (int expert = 0; expert < 2; ++expert) {
    const std::string prefix =
        "model.layers.0.block_sparse_moe.experts." + std::to_string(expert) + ".";
    AddInt8(tensors, prefix + "w1", kInner, kHidden);
    AddInt8(tensors, prefix + "w2", kHidden, kInner);
    AddInt8(tensors, prefix + "w3", kInner, kHidden);
  }
  return tensors;
}

TestTensor& Find(Tensors& tensors, const std::string& name) {
  for (TestTensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw std::out_of_range(name);
}

void Remove(Tensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
}

const std::string kW1 = "model.layers.0.block_sparse_moe.experts.1.w1";
const std::string kQ = "model.layers.0.self_attn.q_proj";

class LoadingContractTest : public ::testing::Test {
 protected:
  ContractReport Check(const Tensors& tensors, const std::string& quantization = Int8Quantization(),
                       Runtime runtime = Runtime::kVllm, uint64_t tp = 1) {
    std::filesystem::remove_all(folder_ / "m");
    WriteCheckpoint(folder_ / "m", {{"m.safetensors", tensors}}, ConfigText(quantization));
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder_ / "m");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto report = CheckLoading(*checkpoint, runtime, tp);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return *report;
  }
  std::string ErrorsOf(const ContractReport& report) {
    std::string text;
    for (const ContractFinding& finding : report.findings)
      if (finding.error) text += finding.object + ": " + finding.message + "\n";
    EXPECT_EQ(report.ok(), text.empty());
    return text;
  }
  // The errors after a change to the good checkpoint; none is the worst outcome.
  std::string ErrorsAfter(const std::function<void(Tensors&)>& change) {
    Tensors tensors = GoodTensors();
    change(tensors);
    const std::string errors = ErrorsOf(Check(tensors));
    EXPECT_NE(errors, "");
    return errors;
  }
  TempFolder folder_;
};

const ModuleClass& ClassOf(const ContractReport& report, const std::string& group) {
  for (const ModuleClass& entry : report.classes)
    if (entry.group == group) return entry;
  throw std::out_of_range(group);
}

TEST_F(LoadingContractTest, TheConvertersOwnOutputLoads) {
  const ContractReport report = Check(GoodTensors());
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(ClassOf(report, "mlp.experts").method, "CompressedTensorsW8A8Int8MoEMethod");
  EXPECT_EQ(ClassOf(report, "self_attn.qkv_proj").method, "CompressedTensorsW8A8Int8");
  EXPECT_EQ(ClassOf(report, "mlp.gate").method, "UnquantizedLinearMethod");
  EXPECT_EQ(ClassOf(report, "lm_head").method, "UnquantizedLinearMethod");
  EXPECT_EQ(report.scales, 4 * 8 + 2 * (4 + 8 + 4));
  EXPECT_FLOAT_EQ(report.largest_scale, 0.01f);
}

TEST_F(LoadingContractTest, ShapesArePerRank) {
  const ContractReport report = Check(GoodTensors(), Int8Quantization(), Runtime::kVllm, 2);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_THAT(
      ClassOf(report, "mlp.experts").parameters,
      ::testing::ElementsAre("w13_weight int8 [2, 4, 8]", "w2_weight int8 [2, 8, 2]",
                             "w13_weight_scale f32 [2, 4, 1]", "w2_weight_scale f32 [2, 8, 1]"));
  EXPECT_THAT(ClassOf(report, "self_attn.qkv_proj").parameters,
              ::testing::ElementsAre("weight int8 [12, 8]", "weight_scale f32 [12, 1]"));
  EXPECT_THAT(ClassOf(report, "self_attn.o_proj").parameters,
              ::testing::ElementsAre("weight int8 [8, 4]", "weight_scale f32 [8, 1]"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), Int8Quantization(), Runtime::kVllm, 3)),
              ::testing::AllOf(HasSubstr("num_attention_heads"), HasSubstr("intermediate_size"),
                               HasSubstr("num_key_value_heads")));
}

TEST_F(LoadingContractTest, KunlunMultipliesAndSaysSo) {
  const ContractReport report = Check(GoodTensors(), Int8Quantization(), Runtime::kVllmKunlun);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_EQ(ClassOf(report, "mlp.experts").method, "KunlunCompressedTensorsW8A8Int8MoEMethod");
  Tensors tensors = GoodTensors();
  Find(tensors, kW1 + ".weight_scale").bytes = FloatBytes({1e38f, 1, 1, 1});
  EXPECT_THAT(ErrorsOf(Check(tensors, Int8Quantization(), Runtime::kVllmKunlun)),
              HasSubstr("overflows"));
  EXPECT_EQ(ErrorsOf(Check(tensors)), "");
}

TEST_F(LoadingContractTest, ExpertsThatWouldBecomeUnquantised) {
  const std::string errors = ErrorsOf(
      Check(GoodTensors(),
            Int8Quantization(R"(["re:.*self_attn.*","re:.*block_sparse_moe.experts.*w[123]$"])")));
  EXPECT_THAT(errors,
              HasSubstr("is I8 on disk, but UnquantizedFusedMoEMethod loads it as plain numbers"));
  EXPECT_THAT(errors, HasSubstr("and 5 more of this kind"));
}

TEST_F(LoadingContractTest, AnIgnoreThatHitsGateProj) {
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(),
                             Int8Quantization(R"(["Linear"])", R"(["lm_head","re:.*gate.*"])"))),
              HasSubstr("all parts need the same scheme"));
}

TEST_F(LoadingContractTest, AnIgnoreThatHitsAQuantisedModule) {
  const std::string ignore = R"(["lm_head","model.layers.0.self_attn.o_proj","re:.*\\.gate$"])";
  EXPECT_THAT(
      ErrorsOf(Check(GoodTensors(), Int8Quantization(R"(["Linear"])", ignore))),
      HasSubstr("model.layers.0.self_attn.o_proj: is I8 on disk, but UnquantizedLinearMethod"));
  const std::string one = R"(["lm_head",")" + kQ + R"(","re:.*\\.gate$"])";
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), Int8Quantization(R"(["Linear"])", one))),
              HasSubstr("qkv_proj"));
}

TEST_F(LoadingContractTest, AModuleThatIsNotQuantisedOnDisk) {
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                TestTensor& weight = Find(t, kQ + ".weight");
                weight.dtype = "BF16";
                weight.bytes += weight.bytes;
              }),
              HasSubstr("is BF16 on disk, but CompressedTensorsW8A8Int8 loads I8"));
}

TEST_F(LoadingContractTest, ScalesMissingOrMisshapen) {
  EXPECT_THAT(ErrorsAfter([](Tensors& t) { Remove(t, kW1 + ".weight_scale"); }),
              HasSubstr("the buffer keeps its ones"));
  EXPECT_THAT(ErrorsAfter([](Tensors& t) { Find(t, kW1 + ".weight_scale").shape = {kInner}; }),
              HasSubstr("weight_scale is [4], the parameter is [4, 1]"));
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                Find(t, kW1 + ".weight_scale") = {
                    kW1 + ".weight_scale", "BF16", {kInner, 1}, std::string(8, 'x')};
              }),
              HasSubstr("weight_scale is BF16"));
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                t.push_back({kQ + ".weight_zero_point", "I8", {1}, "x"});
              }),
              HasSubstr("has weight_zero_point"));
  for (const float bad : {0.0f, -1.0f, static_cast<float>(NAN)})
    EXPECT_THAT(ErrorsAfter([&](Tensors& t) {
                  Find(t, kW1 + ".weight_scale").bytes = FloatBytes({1, bad, 1, 1});
                }),
                HasSubstr("row 1 is"));
}

TEST_F(LoadingContractTest, ExpertsMissingOrTooSmall) {
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                Remove(t, kW1 + ".weight");
                Remove(t, kW1 + ".weight_scale");
              }),
              HasSubstr("has w1 (gate) of 1 experts, the config says 2"));
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                Remove(t, kW1 + ".weight");
                Remove(t, kW1 + ".weight_scale");
                AddInt8(t, kW1, kInner - 1, kHidden);
              }),
              HasSubstr("is [3, 8], the config's sizes give [4, 8]"));
}

TEST_F(LoadingContractTest, FloatSchemesOnKunlun) {
  const std::string fp8 =
      Int8Quantization(R"(["Linear"])", R"(["lm_head","re:.*\\.gate$"])", "float");
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), fp8, Runtime::kVllmKunlun)),
              HasSubstr("runs it as INT8"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), fp8)), HasSubstr("loads F8_E4M3"));
  const std::string block = R"({"quant_method":"fp8","weight_block_size":[128,128]})";
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), block, Runtime::kVllmKunlun)),
              HasSubstr("not supported by vLLM-Kunlun"));
}

TEST_F(LoadingContractTest, ConfigsThatCannotBeRead) {
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), R"({"quant_method":"awq"})")),
              HasSubstr("cannot be judged"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), R"({"quant_method":"compressed-tensors"})")),
              HasSubstr("config_groups"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), Int8Quantization(R"x(["re:(?P<a>x)"])x"))),
              HasSubstr("cannot be judged"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), "null")), HasSubstr("loads it as plain numbers"));
}

TEST_F(LoadingContractTest, WarnsAboutIgnoresThatMatchNothing) {
  const ContractReport report =
      Check(GoodTensors(),
            Int8Quantization(R"(["Linear"])", R"(["lm_head","re:.*\\.gate$","re:.*vision.*"])"));
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_FALSE(report.findings[0].error);
  EXPECT_THAT(report.findings[0].message, HasSubstr("vision"));
}

TEST_F(LoadingContractTest, TheSourceLoadsOnVllm) {
  Tensors tensors;
  tensors.push_back({kQ + ".weight", "F8_E4M3", {8, 8}, std::string(64, '8')});
  tensors.push_back({kQ + ".weight_scale_inv", "F32", {1, 1}, FloatBytes({1})});
  const std::string block = R"({"quant_method":"fp8","weight_block_size":[128,128]})";
  EXPECT_EQ(ErrorsOf(Check(tensors, block)), "");
  tensors.pop_back();
  EXPECT_THAT(ErrorsOf(Check(tensors, block)), HasSubstr("without weight_scale_inv"));
}

}  // namespace
}  // namespace blockscale
