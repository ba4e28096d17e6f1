#include "model/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fp8_matrix.h"
#include "checkpoint/output_file.h"
#include "model/synth_values.h"
#include "support/faulty_file_system.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

SynthOptions Small(const std::string& output) {
  SynthOptions options{.output = output};
  options.size = {.layers = 1,
                  .experts = 2,
                  .hidden = 192,
                  .intermediate = 100,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 128,
                  .vocab = 33};
  options.shards = 3;
  return options;
}

// One digest over all files in the order of their names.
std::string DigestOf(const std::string& folder) {
  std::string all;
  for (const std::string& name : *PosixFileSystem().List(folder))
    all += name + testing::ReadFile(std::filesystem::path(folder) / name);
  return Xxh3Hex(std::as_bytes(std::span(all)));
}

TEST(Synth, IsTheSameEverywhereForTheSameSeed) {
  TempFolder folder;
  ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), Small(folder / "a")).ok());
  ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), Small(folder / "b")).ok());
  SynthOptions other = Small(folder / "c");
  other.seed = 2;
  ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), other).ok());
  EXPECT_EQ(DigestOf(folder / "a"), DigestOf(folder / "b"));
  EXPECT_NE(DigestOf(folder / "a"), DigestOf(folder / "c"));
  // Recorded once: other machines, compilers and thread counts must come to the same bytes.
  EXPECT_EQ(DigestOf(folder / "a"), "b6c45b3d37f1e62d579e4bc94ae2566b");
}

TEST(Synth, MakesWhatAQuantiserLeaves) {
  TempFolder folder;
  const auto summary = SynthesizeCheckpoint(PosixFileSystem(), Small(folder / "a"));
  ASSERT_TRUE(summary.ok());
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "a");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors().size(), summary->tensors);
  EXPECT_EQ(checkpoint->data_bytes(), summary->data_bytes);
  EXPECT_EQ(checkpoint->index().total_size, summary->data_bytes);
  const auto matrices = FindFp8Matrices(*checkpoint);
  ASSERT_TRUE(matrices.ok()) << matrices.status().message();
  EXPECT_EQ(matrices->size(), summary->fp8_matrices);
  int apart = 0;
  for (const Fp8Matrix& matrix : *matrices) {
    apart += matrix.weight.shard != matrix.scale.shard;
    const auto scales = ReadScales(*checkpoint, matrix);
    ASSERT_TRUE(scales.ok());
    const auto codes = *checkpoint->ReadAll(matrix.weight, 1 << 20);
    std::vector<uint8_t> largest(matrix.grid_rows * matrix.grid_columns);
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto code = std::to_integer<uint8_t>(codes[i] & std::byte{0x7F});
      ASSERT_NE(code, 0x7F);
      uint8_t& block =
          largest[i / matrix.columns / 128 * matrix.grid_columns + i % matrix.columns / 128];
      block = std::max(block, code);
    }
    for (const uint8_t code : largest) EXPECT_EQ(code, 0x7E);  // 448 in every block
  }
  EXPECT_EQ(apart, 2);  // at each cut
}

TEST(Synth, ValuesDoNotDependOnHowTheyAreCut) {
  const TensorInfo tensor{
      .name = "x.weight", .dtype = DType::kF8E4M3, .shape = {300, 200}, .begin = 0, .end = 60000};
  std::vector<std::byte> whole(60000), parts(60000);
  FillSynthetic(1, tensor, 0, whole);
  for (uint64_t offset = 0; offset < 60000; offset += 6400)
    FillSynthetic(1, tensor, offset,
                  std::span(parts).subspan(offset, std::min<uint64_t>(6400, 60000 - offset)));
  EXPECT_EQ(whole == parts, true);
}

TEST(Synth, ShardNamesLieAsMiniMaxDoes) {
  EXPECT_EQ(SynthShardName(Family::kMiniMaxM2, 0, 125), "model-00000-of-00130.safetensors");
  EXPECT_EQ(SynthShardName(Family::kMiniMaxM2, 124, 125), "model-00124-of-00130.safetensors");
  EXPECT_EQ(SynthShardName(Family::kMiniMaxM2, 0, 1), "model-00000-of-00002.safetensors");
  EXPECT_EQ(SynthShardName(Family::kKimiK3, 0, 3), "model-00001-of-00003.safetensors");
}

TEST(Synth, MakesAsManyShardsAsAsked) {
  TempFolder folder;
  for (const uint64_t shards : {1, 2, 5, 11}) {
    SynthOptions options = Small(folder / std::to_string(shards));
    options.shards = shards;
    const auto summary = SynthesizeCheckpoint(PosixFileSystem(), options);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary->shards, shards);
    EXPECT_TRUE(Checkpoint::Open(PosixFileSystem(), options.output).ok());
  }
}

// Everything that can be known beforehand is refused before a folder is made.
TEST(Synth, RefusesBeforeWriting) {
  TempFolder folder;
  testing::FaultyFileSystem files(PosixFileSystem());
  files.free_bytes = 1000;
  const auto refusal = [&](const std::function<void(SynthOptions&)>& change) {
    SynthOptions options = Small(folder / "a");
    change(options);
    const auto summary = SynthesizeCheckpoint(files, options);
    EXPECT_FALSE(summary.ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
    EXPECT_EQ(files.writes(), 0);
    return summary.status().message();
  };
  EXPECT_THAT(refusal([](SynthOptions&) {}), HasSubstr("1000 are free"));
  EXPECT_THAT(refusal([](SynthOptions& o) { o.size.hidden = 0; }), HasSubstr("--hidden is 0"));
  EXPECT_THAT(refusal([](SynthOptions& o) { o.size.kv_heads = 3; }), HasSubstr("not a multiple"));
  EXPECT_THAT(refusal([](SynthOptions& o) { o.size.layers = o.size.experts = 1 << 24; }),
              HasSubstr("limit of 2000000 tensors"));
  EXPECT_THAT(refusal([](SynthOptions& o) { o.shards = 12; }), HasSubstr("from 1 to 11"));
  EXPECT_THAT(refusal([](SynthOptions& o) {
                o.sparse = true;
                o.size.experts = 100'000;
                o.size.hidden = o.size.intermediate = 1 << 24;
              }),
              HasSubstr("limit of 1125899906842624 bytes"));
  EXPECT_THAT(refusal([](SynthOptions& o) {
                o.sparse = true;
                o.shards = 1;
                o.size = {.layers = 1,
                          .experts = 200'000,
                          .hidden = 1,
                          .intermediate = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .vocab = 1};
              }),
              HasSubstr("choose more --shards than 1"));
}

TEST(Synth, RefusesAFolderThatHoldsSomething) {
  TempFolder folder;
  testing::WriteFile(folder / "a/file", "mine");
  const auto summary = SynthesizeCheckpoint(PosixFileSystem(), Small(folder / "a"));
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.status().code(), StatusCode::kRefused);
  EXPECT_THAT(summary.status().message(), HasSubstr("it holds 'file'"));
  std::filesystem::create_directory(folder.path() / "empty");
  EXPECT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), Small(folder / "empty")).ok());
}

TEST(Synth, AFailedWriteIsAnErrorWhereverItStrikes) {
  using Fault = testing::FaultyFileSystem::Fault;
  TempFolder folder;
  testing::FaultyFileSystem files(PosixFileSystem());
  ASSERT_TRUE(SynthesizeCheckpoint(files, Small(folder / "a")).ok());
  const int64_t writes = files.writes();
  EXPECT_GT(writes, 50);
  // A full disk stays full; after one EIO everything works, so that nobody else reports it.
  for (const auto& [fault, code] : {std::pair(Fault::kDiskFull, StatusCode::kDiskFull),
                                    std::pair(Fault::kWriteEio, StatusCode::kIo)}) {
    int named = 0;
    for (int64_t nth = 1; nth <= writes; ++nth) {
      std::filesystem::remove_all(folder / "a");
      files.Arm(fault, nth);
      const auto summary = SynthesizeCheckpoint(files, Small(folder / "a"));
      ASSERT_FALSE(summary.ok()) << nth;
      ASSERT_EQ(summary.status().code(), code) << nth;
      named += std::filesystem::exists(folder / "a/config.json");
    }
    // The config comes last: only flushing its folder can still fail once it has its name.
    EXPECT_EQ(named, 1);
  }
}

TEST(Synth, FullSizeIsSparseOnDisk) {
  TempFolder folder;
  SynthOptions options{.output = folder / "full", .sparse = true};
  const auto summary = SynthesizeCheckpoint(PosixFileSystem(), FullSize(options));
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->fp8_matrices, 47'864u);
  EXPECT_EQ(summary->shards, 125u);
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), options.output);
  ASSERT_TRUE(checkpoint.ok());
  // As the headers on disk say, not as the plan said.
  EXPECT_EQ(checkpoint->tensors().size(), 96'103u);
  EXPECT_EQ(checkpoint->data_bytes(), 230'121'630'720u);
  EXPECT_EQ(checkpoint->shards().front()->name, "model-00000-of-00130.safetensors");
  EXPECT_EQ(checkpoint->shards().back()->name, "model-00124-of-00130.safetensors");
  EXPECT_EQ(checkpoint->Find("model.embed_tokens.weight").shard,
            checkpoint->shards().front().get());
  EXPECT_EQ(checkpoint->Find("lm_head.weight").shard, checkpoint->shards().back().get());
  EXPECT_NEAR(static_cast<double>(*checkpoint->index().total_size), 480e9,
              30e9);  // as M2.7's own says
  uint64_t on_disk = 0;
  for (const std::string& name : *PosixFileSystem().List(options.output)) {
    struct stat status;
    ASSERT_EQ(stat((std::filesystem::path(options.output) / name).c_str(), &status), 0);
    on_disk += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  EXPECT_LT(on_disk, 64u << 20);
}

}  // namespace
}  // namespace blockscale
