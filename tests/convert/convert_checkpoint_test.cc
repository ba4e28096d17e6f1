#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "blockscale/convert.h"
#include "checkpoint/checkpoint.h"
#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the project's own test support

// A folder with the sample in "source".
class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest() { WriteSample(folder_ / "source"); }
  ConvertSummary Convert(ConvertOptions options) {
    const auto summary = ConvertCheckpoint(options);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return summary.ok() ? *summary : ConvertSummary{};
  }
  ConvertSummary ConvertTo(const std::string& output) {
    return Convert(OptionsFor(folder_ / "source", folder_ / output));
  }
  Checkpoint OpenOutput(const std::string& output) {
    auto opened = Checkpoint::Open(PosixFileSystem(), folder_ / output);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(*opened);
  }
  TempFolder folder_;
};

template <typename T>
std::vector<T> Values(const Checkpoint& checkpoint, const std::string& name) {
  const TensorRef tensor = checkpoint.Find(name);
  EXPECT_TRUE(tensor) << name;
  if (!tensor) return {};
  const std::vector<std::byte> bytes = *checkpoint.ReadAll(tensor, 1 << 30);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The definition, once more and as plainly as it can be put, for one matrix.
struct Expected {
  std::vector<float> scales;
  std::vector<int8_t> codes;
};

float Fp8(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

Expected ConvertByDefinition(const std::string& codes, size_t rows, size_t columns,
                             const std::vector<float>& block_scales, size_t block,
                             Int8Range range = Int8Range::k127) {
  const size_t grid_columns = (columns + block - 1) / block;
  const bool wide = range == Int8Range::k128;
  Expected expected;
  for (size_t row = 0; row < rows; ++row) {
    std::vector<float> values(columns);
    float largest = 0;
    for (size_t column = 0; column < columns; ++column) {
      values[column] = Fp8(static_cast<uint8_t>(codes[row * columns + column])) *
                       block_scales[row / block * grid_columns + column / block];
      largest = std::max(largest, std::fabs(values[column]));
    }
    float scale = largest / (wide ? 127.5f : 127.0f);
    if (largest == 0) scale = wide ? 0x1p-23f : 1.0f;
    expected.scales.push_back(scale);
    for (const float value : values) {
      const float rounded = std::nearbyint(value / scale);
      expected.codes.push_back(
          static_cast<int8_t>(std::clamp(rounded, wide ? -128.0f : -127.0f, 127.0f)));
    }
  }
  return expected;
}

std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_F(ConvertTest, CodesAndScalesAreTheDefinition) {
  const ShardMap shards = SampleShards();
  for (const Int8Range range : {Int8Range::k127, Int8Range::k128}) {
    const std::string output = range == Int8Range::k127 ? "out127" : "out128";
    ConvertOptions options = OptionsFor(folder_ / "source", folder_ / output);
    options.range = range;
    Convert(options);
    const Checkpoint result = OpenOutput(output);
    const auto check = [&](const TestTensor& matrix, const std::vector<float>& scales,
                           size_t block) {
      const Expected expected =
          ConvertByDefinition(matrix.bytes, matrix.shape[0], matrix.shape[1], scales, block, range);
      EXPECT_EQ(Values<int8_t>(result, matrix.name), expected.codes) << matrix.name;
      EXPECT_EQ(Values<float>(result, matrix.name + "_scale"), expected.scales) << matrix.name;
    };
    const auto& first = shards.at("model-00000-of-00009.safetensors");
    const auto& second = shards.at("model-00001-of-00009.safetensors");
    const auto& third = shards.at("model-00002-of-00009.safetensors");
    check(first[1], FloatsOf(third[0].bytes), 128);  // scale in another shard
    check(first[2], FloatsOf(first[3].bytes), 128);  // edge blocks, zero rows, ties
    std::vector<float> widened;                      // BF16 scales named .scale
    for (size_t i = 0; i < second[1].bytes.size(); i += 2)
      widened.push_back(FloatsOf(std::string(2, '\0') + second[1].bytes.substr(i, 2))[0]);
    check(second[0], widened, 128);
    check(second[2], FloatsOf(second[3].bytes), 1000);  // one scale for the matrix
  }
}

TEST_F(ConvertTest, EverythingElseIsKept) {
  ConvertTo("out");
  const Checkpoint result = OpenOutput("out");
  for (const auto& [shard, tensors] : SampleShards()) {
    for (const TestTensor& tensor : tensors) {
      if (tensor.dtype == "F8_E4M3" || tensor.name.find("scale") != std::string::npos) continue;
      const TensorRef kept = result.Find(tensor.name);
      ASSERT_TRUE(kept) << tensor.name;
      EXPECT_EQ(kept.shard->name, shard);
      EXPECT_EQ(NameOf(kept.info->dtype), tensor.dtype);
      EXPECT_EQ(kept.info->shape, tensor.shape);
      const std::vector<char> bytes = Values<char>(result, tensor.name);
      EXPECT_EQ(std::string(bytes.begin(), bytes.end()), tensor.bytes) << tensor.name;
    }
  }
  for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja",
                           "modeling_minimax_m2.py"})
    EXPECT_EQ(ReadFile(folder_.path() / "out" / name), ReadFile(folder_.path() / "source" / name));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/consolidated.safetensors"));
}

TEST_F(ConvertTest, ShardsKeepNamesAndGroupingAndTheEmptyOneIsNotWritten) {
  ConvertTo("out");
  const Checkpoint result = OpenOutput("out");
  ASSERT_EQ(result.shards().size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model-00002-of-00009.safetensors"));
  for (const TensorRef& tensor : result.tensors()) {
    const std::string& name = tensor.info->name;
    if (tensor.info->dtype != DType::kI8) continue;
    EXPECT_EQ(result.Find(name + "_scale").shard, tensor.shard) << name;
    EXPECT_EQ(result.Find(name + "_scale").info->shape,
              (std::vector<uint64_t>{tensor.info->shape[0], 1}));
  }
  for (const auto& shard : result.shards())
    EXPECT_EQ(shard->header.metadata,
              (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  EXPECT_EQ(result.index().total_size, result.data_bytes());
  uint64_t tensors_in_shards = 0;
  for (const auto& shard : result.shards()) tensors_in_shards += shard->header.tensors.size();
  EXPECT_EQ(tensors_in_shards, result.tensors().size());
  EXPECT_FALSE(result.Find("model.layers.0.self_attn.kv_a_proj.scale"));
}

TEST_F(ConvertTest, SourceIsUnchanged) {
  const auto before = FolderBytes(folder_ / "source");
  ConvertTo("out");
  EXPECT_EQ(FolderBytes(folder_ / "source"), before);
}

TEST_F(ConvertTest, BytesDependOnNeitherThreadsNorChunks) {
  ConvertTo("reference");
  const auto reference = FolderBytes(folder_ / "reference");
  ASSERT_GE(reference.size(), 9u);
  int run = 0;
  for (const unsigned threads : {1u, 2u, 3u, 8u}) {
    for (const uint64_t chunk_rows : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{100000}}) {
      const std::string output = "out" + std::to_string(run++);
      ConvertOptions options = OptionsFor(folder_ / "source", folder_ / output);
      options.threads = threads;
      options.chunk_rows = chunk_rows;
      Convert(options);
      EXPECT_EQ(FolderBytes(folder_ / output), reference) << threads << " " << chunk_rows;
    }
  }
}

TEST_F(ConvertTest, ReportTellsWhatEveryMatrixLost) {
  const ConvertSummary summary = ConvertTo("out");
  ASSERT_EQ(summary.matrices.size(), 4u);
  const auto report = nlohmann::json::parse(ReadFile(folder_ / "out/conversion_report.json"));
  EXPECT_EQ(report["matrices_converted"], 4);
  EXPECT_EQ(report["int8_range"], "127");
  ASSERT_EQ(report["matrices"].size(), 4u);
  for (const auto& matrix : report["matrices"]) {
    EXPECT_GT(matrix["relative_rmse"], 0.0);
    EXPECT_LT(matrix["relative_rmse"], 0.02);
    EXPECT_NEAR(matrix["sqnr_db"], -20 * std::log10(matrix["relative_rmse"].get<double>()), 1e-9);
    EXPECT_LE(matrix["max_half_steps"], 1.0 + 1e-5);
    EXPECT_GT(matrix["max_half_steps"], 0.5);
    EXPECT_EQ(matrix["zero_rows"],
              matrix["name"].get<std::string>().find("q_proj") != std::string::npos ? 2 : 0);
  }
  const std::string page = ReadFile(folder_ / "out/conversion_report.html");
  EXPECT_THAT(page, HasSubstr("Throughput of this run"));
  EXPECT_THAT(page, HasSubstr("id=\"heatmap\""));
}

// The converter's quality numbers (FP32 lanes) against the verifier's (double, element by element).
TEST_F(ConvertTest, VerifierAgreesWithTheReport) {
  const ConvertSummary summary = ConvertTo("out");
  const auto report =
      VerifyCheckpoint({.source = folder_ / "source", .converted = folder_ / "out"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const VerifyFailure& failure : report->failures)
    ADD_FAILURE() << failure.object << ": " << failure.message;
  ASSERT_EQ(report->matrices.size(), summary.matrices.size());
  for (const MatrixQuality& verified : report->matrices) {
    const auto converted =
        std::find_if(summary.matrices.begin(), summary.matrices.end(),
                     [&](const MatrixQuality& m) { return m.name == verified.name; });
    ASSERT_NE(converted, summary.matrices.end()) << verified.name;
    EXPECT_NEAR(converted->relative_rmse, verified.relative_rmse, 1e-5 * verified.relative_rmse);
    EXPECT_NEAR(converted->max_half_steps, verified.max_half_steps, 1e-5);
    EXPECT_EQ(converted->zero_rows, verified.zero_rows);
  }
}

TEST_F(ConvertTest, DryRunCountsExactlyAndWritesNothing) {
  const auto plan = PlanConversion(OptionsFor(folder_ / "source", folder_ / "out"));
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_EQ(plan->matrices, 4u);
  EXPECT_EQ(plan->source_shards, 3u);
  EXPECT_EQ(plan->output_shards, 2u);
  ConvertTo("out");
  const Checkpoint result = OpenOutput("out");
  EXPECT_EQ(plan->output_bytes, result.data_bytes());
  uint64_t file_bytes = 0;
  for (const auto& shard : result.shards()) file_bytes += shard->file->facts().size;
  EXPECT_EQ(plan->file_bytes, file_bytes);
}

TEST_F(ConvertTest, ProgressReachesTheEnd) {
  ConvertOptions options = OptionsFor(folder_ / "source", folder_ / "out");
  std::vector<std::string> finished;
  ConvertProgress last;
  options.progress = [&](const ConvertProgress& progress) {
    EXPECT_GE(progress.bytes_done, last.bytes_done);
    last = progress;
    if (!progress.finished_shard.empty()) finished.push_back(progress.finished_shard);
  };
  Convert(options);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.shards_done, 2u);
  EXPECT_EQ(finished.size(), 2u);
}

TEST_F(ConvertTest, ReadsThroughLinksAndWritesThroughNone) {
  std::filesystem::create_directories(folder_ / "snapshot");
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "source"))
    std::filesystem::create_symlink(entry.path(),
                                    folder_.path() / "snapshot" / entry.path().filename());
  const auto before = FolderBytes(folder_ / "source");
  Convert(OptionsFor(folder_ / "snapshot", folder_ / "out"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out"))
    EXPECT_FALSE(entry.is_symlink()) << entry.path();
  EXPECT_EQ(FolderBytes(folder_ / "source"), before);
}

TEST_F(ConvertTest, RefusesFoldersThatMeet) {
  const auto error = [&](const std::string& output) {
    const auto summary = ConvertCheckpoint(OptionsFor(folder_ / "source", output));
    EXPECT_FALSE(summary.ok()) << output;
    EXPECT_EQ(summary.status().code(), StatusCode::kRefused) << output;
    return summary.status().message();
  };
  const auto before = FolderBytes(folder_ / "source");
  std::filesystem::create_directory_symlink(folder_ / "source", folder_ / "alias");
  for (const std::string& output :
       {folder_ / "source", folder_ / "source/inside", folder_.path().string(), folder_ / "alias",
        folder_ / "alias/inside", folder_ / "x/../source"})
    EXPECT_THAT(error(output), HasSubstr("share a folder"));
  EXPECT_THAT(error(folder_ / "source/config.json"), HasSubstr("share a folder"));
  WriteFile(folder_ / "file", "x");
  EXPECT_THAT(error(folder_ / "file"), HasSubstr("not a folder"));
  WriteFile(folder_ / "full/other", "x");
  EXPECT_THAT(error(folder_ / "full"), HasSubstr("not empty (it holds 'other')"));
  EXPECT_EQ(FolderBytes(folder_ / "source"), before);
}

}  // namespace
}  // namespace blockscale
