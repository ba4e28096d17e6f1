// Each thing that can be wrong with a source: an error that names file, tensor and value, and
// nothing half-written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "blockscale/convert.h"
#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT

TestTensor& Tensor(ShardMap& shards, const std::string& name) {
  for (auto& [shard, tensors] : shards)
    for (TestTensor& tensor : tensors)
      if (tensor.name == name) return tensor;
  throw std::out_of_range(name);
}

void RemoveTensor(ShardMap& shards, const std::string& name) {
  for (auto& [shard, tensors] : shards)
    std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
}

const std::string kQ = "model.layers.0.self_attn.q_proj.weight";
const std::string kW1 = "model.layers.0.block_sparse_moe.experts.1.w1.weight";

class BadInputTest : public ::testing::Test {
 protected:
  // Changes the sample, converts, and returns the message; no file may have a final shard name
  // unless it is whole, and no partial may stay.
  std::string ErrorAfter(const std::function<void(ShardMap&)>& change) {
    ShardMap shards = SampleShards();
    change(shards);
    WriteSample(folder_ / "source", shards);
    return Error();
  }
  std::string Error() {
    std::filesystem::remove_all(folder_ / "out");
    const auto summary = ConvertCheckpoint(OptionsFor(folder_ / "source", folder_ / "out"));
    EXPECT_FALSE(summary.ok());
    EXPECT_EQ(summary.status().code(), StatusCode::kInvalidInput);
    if (std::filesystem::exists(folder_ / "out"))
      for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
        EXPECT_NE(entry.path().extension(), ".partial");
        EXPECT_NE(entry.path().filename(), "config.json");
      }
    return summary.status().message();
  }
  TempFolder folder_;
};

TEST_F(BadInputTest, NanCodesAreCountedAndTheFirstIsNamed) {
  const std::string message = ErrorAfter([](ShardMap& shards) {
    std::string& bytes = Tensor(shards, kQ).bytes;
    bytes[100 * 300 + 17] = '\x7F';
    bytes[100 * 300 + 250] = '\xFF';
    bytes[199 * 300 + 299] = '\xFF';
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("model-00000-of-00009.safetensors"), HasSubstr("'" + kQ + "'"),
                    HasSubstr("[100, 17]"), HasSubstr("0x7F"), HasSubstr("first of 3")));
}

TEST_F(BadInputTest, ZeroScaleOverCodesThatAreNotZero) {
  const std::string message = ErrorAfter([](ShardMap& shards) {
    Tensor(shards, kQ + "_scale_inv").bytes = FloatBytes({1, 1, 1, 1, 0, 1});
  });
  EXPECT_THAT(message, AllOf(HasSubstr(kQ), HasSubstr("[128, 12"), HasSubstr("is 0")));
}

TEST_F(BadInputTest, AZeroScaleOverZerosIsFine) {
  ShardMap shards = SampleShards();
  std::string& codes = Tensor(shards, kW1).bytes;
  for (size_t row = 0; row < 128; ++row)
    for (size_t column = 0; column < 128; ++column)
      codes[row * 256 + column] = column % 2 ? '\x80' : '\0';
  Tensor(shards, kW1 + "_scale_inv").bytes = FloatBytes({0, 1});
  WriteSample(folder_ / "source", shards);
  const auto summary = ConvertCheckpoint(OptionsFor(folder_ / "source", folder_ / "out"));
  EXPECT_TRUE(summary.ok()) << summary.status().message();
}

TEST_F(BadInputTest, ScalesThatAreNoScales) {
  for (const float bad : {NAN, INFINITY, -INFINITY, -1.0f}) {
    const std::string message = ErrorAfter([&](ShardMap& shards) {
      Tensor(shards, kQ + "_scale_inv").bytes = FloatBytes({1, 1, bad, 1, 1, 1});
    });
    EXPECT_THAT(message, AllOf(HasSubstr(kQ + "_scale_inv"), HasSubstr("scale [0, 2]")));
  }
}

TEST_F(BadInputTest, ScalesBeyondWhatFp32Holds) {
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) {
                Tensor(shards, kW1 + "_scale_inv").bytes = FloatBytes({1e38f, 1});
              }),
              AllOf(HasSubstr(kW1), HasSubstr("larger than FP32")));
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) {
                Tensor(shards, kW1 + "_scale_inv").bytes = FloatBytes({1e-44f, 1e-44f});
              }),
              AllOf(HasSubstr(kW1), HasSubstr("INT8 scale")));
}

TEST_F(BadInputTest, ScalesMissingDoubledOrleftOver) {
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) { RemoveTensor(shards, kQ + "_scale_inv"); }),
              AllOf(HasSubstr(kQ), HasSubstr("no scale")));
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) { RemoveTensor(shards, kQ); }),
              AllOf(HasSubstr(kQ + "_scale_inv"), HasSubstr("not there")));
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) {
                shards.begin()->second.push_back({kQ + "_scale", "F32", {}, FloatBytes({1})});
              }),
              HasSubstr("two scales"));
}

TEST_F(BadInputTest, AGridThatDoesNotMatch) {
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) {
                Tensor(shards, kQ + "_scale_inv").shape = {3, 2};
              }),
              AllOf(HasSubstr(kQ + "_scale_inv"), HasSubstr("[3, 2]"), HasSubstr("needs [2, 3]")));
}

TEST_F(BadInputTest, OtherFp8TypesAreNotGuessed) {
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) { Tensor(shards, kQ).dtype = "F8_E5M2"; }),
              HasSubstr("F8_E5M2"));
}

TEST_F(BadInputTest, NothingToConvert) {
  EXPECT_THAT(ErrorAfter([](ShardMap& shards) {
                shards = {{"m.safetensors", {{"a.weight", "F32", {1}, FloatBytes({1})}}}};
              }),
              HasSubstr("nothing to convert"));
}

TEST_F(BadInputTest, AConfigThatSaysSomethingElse) {
  WriteSample(folder_ / "source");
  const std::string good = Fp8Config();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = good;
    config.replace(config.find(from), from.size(), to);
    WriteFile(folder_ / "source/config.json", config);
    return Error();
  };
  EXPECT_THAT(with("\"quant_method\": \"fp8\"", "\"quant_method\": \"awq\""),
              AllOf(HasSubstr("quant_method is 'awq'"), HasSubstr("config.json")));
  EXPECT_THAT(with("[128, 128]", "[64, 128]"), HasSubstr("64x128"));
  EXPECT_THAT(with("[128, 128]", "[128]"), HasSubstr("weight_block_size is [128]"));
  EXPECT_THAT(with("\"quantization_config\"", "\"other_config\""),
              HasSubstr("no quantization_config"));
  EXPECT_THAT(with("{", "["), HasSubstr("not JSON"));
}

TEST_F(BadInputTest, FilesThatAreNotWhole) {
  WriteSample(folder_ / "source");
  const std::string shard = folder_ / "source/model-00001-of-00009.safetensors";
  const std::string good = ReadFile(shard);
  const std::pair<std::string, const char*> cases[] = {
      {good.substr(0, good.size() - 1), "truncated"},
      {good + "x", "after the last tensor"},
      {good.substr(0, 100), "truncated"},
      {"", "too few"}};
  for (const auto& [bytes, reason] : cases) {
    WriteFile(shard, bytes);
    EXPECT_THAT(Error(), AllOf(HasSubstr(reason), HasSubstr("model-00001-of-00009.safetensors")));
  }
}

TEST_F(BadInputTest, AnIndexThatClimbsOut) {
  WriteSample(folder_ / "source");
  for (const char* shard : {"../x.safetensors", "/etc/x.safetensors"}) {
    WriteFile(folder_ / "source/model.safetensors.index.json",
              std::string(R"({"weight_map":{"a":")") + shard + R"("}})");
    EXPECT_THAT(Error(), HasSubstr(shard));
  }
}

TEST_F(BadInputTest, AFolderThatIsNotThere) {
  const auto summary = ConvertCheckpoint(OptionsFor(folder_ / "none", folder_ / "out"));
  ASSERT_FALSE(summary.ok());
  EXPECT_THAT(summary.status().message(), HasSubstr("none"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

// What must be mended in the source first leaves nothing behind that would stand in the way.
TEST_F(BadInputTest, ABadSourceCanBeMendedAndConvertedToTheSameFolder) {
  ShardMap good = SampleShards(), bad = good;
  for (auto& [shard, tensors] : bad)
    for (TestTensor& tensor : tensors)
      if (tensor.name == kQ) tensor.bytes[5] = '\x7F';
  testing::WriteSample(folder_ / "source", bad);
  EXPECT_FALSE(ConvertCheckpoint(OptionsFor(folder_ / "source", folder_ / "out")).ok());
  testing::WriteSample(folder_ / "source", good);
  const auto again = ConvertCheckpoint(OptionsFor(folder_ / "source", folder_ / "out"));
  EXPECT_TRUE(again.ok()) << again.status().message();
}

// They are copied last; that they can be is found out first.
TEST_F(BadInputTest, SideFilesAreOpenedBeforeTheLongWork) {
  testing::WriteSample(folder_ / "source");
  std::filesystem::create_symlink("nowhere", folder_.path() / "source/vocab.txt");
  const auto plan = PlanConversion(OptionsFor(folder_ / "source", folder_ / "out"));
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("vocab.txt"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(BadInputTest, AFolderThatIsNotCopiedIsToldOf) {
  testing::WriteSample(folder_ / "source");
  std::filesystem::create_directory(folder_ / "source/package");
  const auto plan = PlanConversion(OptionsFor(folder_ / "source", folder_ / "out"));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->warnings.size(), 1u);
  EXPECT_THAT(plan->warnings[0], HasSubstr("'package'"));
}

TEST_F(BadInputTest, APlanRefusesWhatTheConversionWouldRefuse) {
  testing::WriteSample(folder_ / "source");
  ASSERT_TRUE(ConvertCheckpoint(OptionsFor(folder_ / "source", folder_ / "out")).ok());
  EXPECT_FALSE(PlanConversion(OptionsFor(folder_ / "source", folder_ / "out")).ok());
}

}  // namespace
}  // namespace blockscale
