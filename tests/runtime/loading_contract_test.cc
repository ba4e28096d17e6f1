// `check` against good checkpoints and against everything that would load silently wrong.

#include "runtime/loading_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sample_model.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // NOLINT

class LoadingContractTest : public ::testing::Test {
 protected:
  ContractReport Check(const Tensors& tensors, const std::string& quantization = Int8Quantization(),
                       Runtime runtime = Runtime::kVllm, uint64_t tp = 1,
                       const std::string& more_config = "") {
    std::filesystem::remove_all(folder_ / "m");
    WriteCheckpoint(folder_ / "m", {{"m.safetensors", tensors}},
                    ConfigText(quantization, more_config));
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
  EXPECT_EQ(ClassOf(report, "lm_head").method, "UnquantizedEmbeddingMethod");
  EXPECT_EQ(ClassOf(report, "mlp.experts").class_name, "RoutedExperts");
  EXPECT_EQ(report.scales, 4 * 8 + 2 * (4 + 8 + 4));
  EXPECT_FLOAT_EQ(report.largest_scale, 0.01f);
}

TEST_F(LoadingContractTest, ShapesArePerRank) {
  const ContractReport report = Check(GoodTensors(), Int8Quantization(), Runtime::kVllm, 2);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_THAT(ClassOf(report, "mlp.experts").parameters,
              ::testing::ElementsAre("w13_weight int8 [2, 4, 8]", "w13_weight_scale f32 [2, 4, 1]",
                                     "w2_weight int8 [2, 8, 2]", "w2_weight_scale f32 [2, 8, 1]"));
  EXPECT_THAT(ClassOf(report, "self_attn.qkv_proj").parameters,
              ::testing::ElementsAre("weight int8 [12, 8]", "weight_scale f32 [12, 1]"));
  EXPECT_THAT(ClassOf(report, "self_attn.o_proj").parameters,
              ::testing::ElementsAre("weight int8 [8, 4]", "weight_scale f32 [8, 1]"));
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), Int8Quantization(), Runtime::kVllm, 3)),
              ::testing::AllOf(HasSubstr("num_attention_heads"), HasSubstr("intermediate_size"),
                               HasSubstr("num_key_value_heads")));
}

TEST_F(LoadingContractTest, EverySizeThatIsSplitIsAMultipleOfTheRanks) {
  const auto errors = [&](uint64_t tp, const std::string& more = "") {
    return ErrorsOf(Check(GoodTensors(), Int8Quantization(), Runtime::kVllm, tp, more));
  };
  EXPECT_EQ(errors(2), "");
  EXPECT_THAT(errors(4), HasSubstr("num_local_experts: 2 is less than --tp 4"));
  EXPECT_THAT(errors(3), HasSubstr("vocab_size, padded to a multiple of 64,: 64 is not"));
  EXPECT_THAT(errors(2, R"("moe_intermediate_size":5,)"), HasSubstr("moe_intermediate_size: 5"));
}

TEST_F(LoadingContractTest, KunlunMultipliesAndSaysSo) {
  const ContractReport report = Check(GoodTensors(), Int8Quantization(), Runtime::kVllmKunlun);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_EQ(ClassOf(report, "mlp.experts").method, "KunlunCompressedTensorsW8A8Int8MoEMethod");
  EXPECT_EQ(ClassOf(report, "mlp.experts").class_name, "FusedMoE");
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
  // As many experts as the config says, but counted from 1.
  const std::string errors = ErrorsAfter([](Tensors& t) {
    for (TestTensor& tensor : t)
      if (const size_t at = tensor.name.find("experts.0."); at != std::string::npos)
        tensor.name[at + 8] = '2';
  });
  EXPECT_THAT(errors, AllOf(HasSubstr("is expert 2, the config says 2 of them, from 0"),
                            HasSubstr("has w1 (gate) of 1 experts, the config says 2")));
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

const char kFp8[] = R"({"quant_method":"fp8","weight_block_size":[4,4],
    "modules_to_not_convert":["gate","lm_head"]})";

TEST_F(LoadingContractTest, TheSourceLoadsOnVllm) {
  const ContractReport report = Check(Fp8Tensors(), kFp8);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_EQ(ClassOf(report, "self_attn.qkv_proj").method, "Fp8LinearMethod");
  EXPECT_EQ(ClassOf(report, "mlp.experts").method, "Fp8MoEMethod");
  EXPECT_THAT(ErrorsOf(Check(Fp8Tensors(), kFp8, Runtime::kVllm, 2)),
              HasSubstr("2 on each of 2 ranks is not a multiple of the scale block 4"));
  Tensors tensors = Fp8Tensors();
  Remove(tensors, kQ + ".weight_scale_inv");
  EXPECT_THAT(ErrorsOf(Check(tensors, kFp8)), HasSubstr("without weight_scale_inv"));
}

TEST_F(LoadingContractTest, Fp8ScalesAndTypes) {
  const std::string name = kQ + ".weight_scale_inv";
  const auto errors = [&](const TestTensor& scale) {
    Tensors tensors = Fp8Tensors();
    Find(tensors, name) = scale;
    return ErrorsOf(Check(tensors, kFp8));
  };
  EXPECT_THAT(errors({name, "F32", {4, 1}, FloatBytes({1, 1, 1, 1})}),
              HasSubstr("weight_scale_inv is [4, 1], the parameter is [2, 2]"));
  EXPECT_EQ(errors({name, "BF16", {2, 2}, Bf16Bytes({1, 1, 1, 1})}), "");
  EXPECT_THAT(errors({name, "F8_E8M0", {2, 2}, "\x7f\x7f\x7f\x7f"}),
              HasSubstr("weight_scale_inv is F8_E8M0"));
}

TEST_F(LoadingContractTest, AFloatMatrixIsRightWhereTheFp8ConfigSaysSo) {
  Tensors tensors = Fp8Tensors();
  Remove(tensors, kQ + ".weight_scale_inv");
  Find(tensors, kQ + ".weight") = {kQ + ".weight", "BF16", {8, 8}, std::string(128, 'q')};
  EXPECT_THAT(ErrorsOf(Check(tensors, kFp8)), HasSubstr(kQ + ": is BF16 on disk"));
  EXPECT_EQ(ErrorsOf(Check(tensors, R"({"quant_method":"fp8","weight_block_size":[4,4],
                                        "modules_to_not_convert":["q_proj"]})")),
            "");
}

TEST_F(LoadingContractTest, TheFormatDecidesWhetherActivationsAreRead) {
  const auto errors = [&](const std::string& format, const std::string& type = "int") {
    return ErrorsOf(
        Check(GoodTensors(), Int8Quantization(R"(["Linear"])", R"(["lm_head"])", type, format)));
  };
  EXPECT_EQ(errors("int-quantized"), "");
  EXPECT_THAT(errors("pack-quantized"), HasSubstr("the runtime drops input_activations"));
  EXPECT_THAT(errors(""), HasSubstr("under format ''"));
  // Another word for the same scheme loads, with a warning.
  const ContractReport report = Check(
      GoodTensors(), Int8Quantization(R"(["Linear"])", R"(["lm_head"])", "int", "float-quantized"));
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0].message, HasSubstr("format is 'float-quantized'"));
}

// vLLM prefers a group's own format to the config's.
TEST_F(LoadingContractTest, AGroupMayHaveAFormatOfItsOwn) {
  const auto errors = [&](const std::string& format) {
    std::string config = Int8Quantization();
    const std::string group = "\"group_0\":{";
    config.replace(config.find(group), group.size(), group + "\"format\":\"" + format + "\",");
    return ErrorsOf(Check(GoodTensors(), config));
  };
  EXPECT_EQ(errors("int-quantized"), "");
  for (const char* format : {"pack-quantized", "dense", "bogus"})
    EXPECT_THAT(errors(format), HasSubstr(std::string("under format '") + format + "'"));
}

// A size that is no size must not leave a check out without a word.
TEST_F(LoadingContractTest, SizesThatAreNoSizesAreErrors) {
  const auto errors = [&](const std::string& from, const std::string& to) {
    std::filesystem::remove_all(folder_ / "m");
    std::string config = ConfigText(Int8Quantization());
    config.replace(config.find(from), from.size(), to);
    WriteCheckpoint(folder_ / "m", {{"m.safetensors", GoodTensors()}}, config);
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder_ / "m");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    return ErrorsOf(*CheckLoading(*checkpoint, Runtime::kVllm, 1));
  };
  EXPECT_THAT(errors("\"num_attention_heads\":2", "\"num_attention_heads\":1099511627776"),
              HasSubstr("'num_attention_heads' is 1099511627776"));
  EXPECT_THAT(errors("\"hidden_size\":8", "\"hidden_size\":\"8\""), HasSubstr("'hidden_size' is"));
  EXPECT_THAT(errors("\"vocab_size\":4", "\"vocab_size\":0"), HasSubstr("'vocab_size' is 0"));
}

TEST_F(LoadingContractTest, AGroupSizeOf2To64Minus1IsNotMinusOne) {
  std::string config = Int8Quantization();
  const std::string bits = "\"num_bits\":8,";
  config.replace(config.find(bits), bits.size(), bits + "\"group_size\":18446744073709551615,");
  EXPECT_THAT(ErrorsOf(Check(GoodTensors(), config)), HasSubstr("below 2^31"));
}

TEST_F(LoadingContractTest, Int8ConfigOverFp8Tensors) {
  EXPECT_THAT(ErrorsOf(Check(Fp8Tensors())),
              AllOf(HasSubstr("is F8_E4M3 on disk, but CompressedTensorsW8A8Int8 loads I8"),
                    HasSubstr("is F8_E4M3 on disk, but CompressedTensorsW8A8Int8MoEMethod")));
}

TEST_F(LoadingContractTest, Fp8BlocksOfCompressedTensors) {
  std::string block = R"({"quant_method":"compressed-tensors","format":"float-quantized",
    "quantization_status":"compressed","config_groups":{"group_0":{"targets":["Linear"],
    "weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[4,4]},
    "input_activations":{"num_bits":8,"type":"float","strategy":"group","group_size":4,
    "dynamic":true}}},"ignore":["lm_head"]})";
  Tensors tensors = Fp8Tensors();
  for (TestTensor& tensor : tensors)
    if (tensor.name.ends_with("_inv")) tensor.name.resize(tensor.name.size() - 4);
  Find(tensors, kQ + ".weight_scale").bytes = FloatBytes({1, 1, 2, 0.25f});
  const ContractReport report = Check(tensors, block);
  EXPECT_EQ(ErrorsOf(report), "");
  EXPECT_EQ(ClassOf(report, "self_attn.o_proj").method, "CompressedTensorsW8A8Fp8");
  EXPECT_THAT(
      ClassOf(report, "mlp.experts").parameters,
      ::testing::ElementsAre("w13_weight f8_e4m3 [2, 8, 8]", "w13_weight_scale f32 [2, 2, 2]",
                             "w2_weight f8_e4m3 [2, 8, 4]", "w2_weight_scale f32 [2, 2, 1]"));
  EXPECT_EQ(report.unit_scales, 2u);
  EXPECT_EQ(report.smallest_scale, 0.25);
  EXPECT_EQ(report.largest_scale, 2);
  EXPECT_THAT(ErrorsOf(Check(tensors, block, Runtime::kVllmKunlun)), HasSubstr("has no method"));
}

TEST_F(LoadingContractTest, LmHeadAndGateAreNeverQuantised) {
  for (const std::string name : {"lm_head", "model.layers.0.block_sparse_moe.gate"}) {
    const std::string errors = ErrorsAfter([&](Tensors& t) {
      TestTensor& weight = Find(t, name + ".weight");
      weight.dtype = "I8";
      weight.bytes.resize(weight.shape[0] * weight.shape[1]);
    });
    EXPECT_THAT(errors, HasSubstr(name + ": is I8 on disk, but Unquantized"));
  }
}

TEST_F(LoadingContractTest, AnIgnoreOfTheFusedNameWorksOnlyLetterByLetter) {
  Tensors tensors = GoodTensors();
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const std::string name = std::string("model.layers.0.self_attn.") + part;
    Remove(tensors, name + ".weight_scale");
    Find(tensors, name + ".weight") = {name + ".weight", "BF16", {8, 8}, std::string(128, 'q')};
  }
  const auto errors = [&](const std::string& ignore) {
    return ErrorsOf(Check(tensors, Int8Quantization(R"(["Linear"])", ignore)));
  };
  EXPECT_EQ(errors(R"(["lm_head","model.layers.0.self_attn.qkv_proj"])"), "");
  EXPECT_EQ(errors(R"(["lm_head","re:.*(q|k|v)_proj$"])"), "");
  EXPECT_THAT(errors(R"(["lm_head","re:.*qkv_proj$"])"), HasSubstr("is BF16 on disk"));
}

TEST_F(LoadingContractTest, ScalesBesideAPlainMatrixAreRefused) {
  EXPECT_THAT(ErrorsAfter([](Tensors& t) {
                t.push_back({"lm_head.weight_scale", "F32", {1}, FloatBytes({1})});
              }),
              HasSubstr("lm_head: has weight_scale, which UnquantizedEmbeddingMethod"));
}

TEST_F(LoadingContractTest, APackedMatrixUnderAnInt8Config) {
  EXPECT_THAT(ErrorsAfter([](Tensors& t) { Find(t, kQ + ".weight").name = kQ + ".weight_packed"; }),
              HasSubstr(kQ + ": is stored as weight_packed"));
}

TEST_F(LoadingContractTest, ErrorsComeBeforeWarningsAndOnOneLine) {
  Tensors tensors = GoodTensors();
  tensors.push_back({"model.a\nb", "F32", {1}, FloatBytes({1})});
  const ContractReport report =
      Check(tensors, Int8Quantization(R"(["Linear"])", R"(["nobody","lm_head"])"));
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_TRUE(report.findings[0].error);
  EXPECT_FALSE(report.findings[1].error);
  EXPECT_EQ(report.findings[0].object.find('\n'), std::string::npos);
}

TEST_F(LoadingContractTest, RefusesWhatItCannotRun) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), {{"m.safetensors", {{"model.norm.weight", "BF16", {1}, "xx"}}}},
                  ConfigText("null"));
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(CheckLoading(*checkpoint, Runtime::kVllm, 1).status().message(),
              HasSubstr("holds no matrix"));
  EXPECT_THAT(CheckLoading(*checkpoint, Runtime::kVllm, 0).status().message(),
              HasSubstr("--tp is 0"));
  TempFolder long_name;
  WriteCheckpoint(long_name.path(),
                  {{"m.safetensors", {{std::string(1001, 'a') + ".weight", "I8", {1, 1}, "x"}}}},
                  ConfigText("null"));
  const auto other = Checkpoint::Open(PosixFileSystem(), long_name.path());
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(CheckLoading(*other, Runtime::kVllm, 1).status().message(),
              HasSubstr("has a name of 1008 bytes"));
}

}  // namespace
}  // namespace blockscale
