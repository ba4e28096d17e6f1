#include "convert/journal.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/json_reader.h"
#include "checkpoint/output_file.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "blockscale-conversion-state";
constexpr int kFormatVersion = 2;

OrderedJson ToJson(const MatrixQuality& quality) {
  return OrderedJson::array({quality.name, quality.rows, quality.columns, quality.relative_rmse,
                             quality.max_half_steps, quality.zero_rows, quality.clipped,
                             quality.from, quality.to, quality.inexact_blocks});
}

// Whole numbers must be written as such: converting a float from outside may not be defined.
uint64_t Whole(const OrderedJson& number) {
  return number.get_ref<const OrderedJson::number_unsigned_t&>();
}

int64_t Signed(const OrderedJson& number) {
  return number.get_ref<const OrderedJson::number_integer_t&>();
}

MatrixQuality QualityFrom(const OrderedJson& row) {
  MatrixQuality quality{.name = row.at(0),
                        .rows = Whole(row.at(1)),
                        .columns = Whole(row.at(2)),
                        .relative_rmse = row.at(3),
                        .max_half_steps = row.at(4),
                        .zero_rows = Whole(row.at(5)),
                        .clipped = Whole(row.at(6)),
                        .from = row.at(7),
                        .to = row.at(8),
                        .inexact_blocks = Whole(row.at(9))};
  quality.sqnr_db = SqnrDb(quality.relative_rmse);
  return quality;
}

std::string ToText(const FinishedShard& shard) {
  OrderedJson matrices = OrderedJson::array();
  for (const MatrixQuality& quality : shard.matrices) matrices.push_back(ToJson(quality));
  return OrderedJson{{"name", shard.name},
                     {"bytes", shard.bytes},
                     {"xxh3_128", shard.digest},
                     {"matrices", std::move(matrices)}}
      .dump();
}

FinishedShard ShardFrom(const OrderedJson& json) {
  FinishedShard shard{
      .name = json.at("name"), .bytes = Whole(json.at("bytes")), .digest = json.at("xxh3_128")};
  for (const OrderedJson& row : json.at("matrices")) shard.matrices.push_back(QualityFrom(row));
  return shard;
}

OrderedJson ToJson(const SourceFingerprint& source) {
  OrderedJson files = OrderedJson::array();
  for (const SourceFingerprint::File& file : source.files)
    files.push_back({{"name", file.name}, {"size", file.size}, {"modified_ns", file.modified_ns}});
  return {{"path", source.path},
          {"config_xxh3_128", source.config_digest},
          {"index_xxh3_128", source.index_digest},
          {"files", std::move(files)}};
}

SourceFingerprint SourceFrom(const OrderedJson& json) {
  SourceFingerprint source{.path = json.at("path"),
                           .config_digest = json.at("config_xxh3_128"),
                           .index_digest = json.at("index_xxh3_128")};
  for (const OrderedJson& file : json.at("files"))
    source.files.push_back(
        {file.at("name"), Whole(file.at("size")), Signed(file.at("modified_ns"))});
  return source;
}

std::string TextDigest(const std::string& text) {
  return text.empty() ? "" : Xxh3Hex(std::as_bytes(std::span(text)));
}

}  // namespace

Result<SourceFingerprint> FingerprintOf(const Checkpoint& checkpoint) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(checkpoint.folder(), error);
  if (error) return IoError("resolve", checkpoint.folder(), error.value());
  SourceFingerprint fingerprint{.path = path.string(),
                                .config_digest = TextDigest(checkpoint.config_text()),
                                .index_digest = TextDigest(checkpoint.index_text())};
  for (const std::unique_ptr<Shard>& shard : checkpoint.shards()) {
    const FileFacts facts = shard->file->facts();
    fingerprint.files.push_back({shard->name, facts.size, facts.modified_ns});
  }
  return fingerprint;
}

std::string FirstDifference(const SourceFingerprint& journalled, const SourceFingerprint& now) {
  if (journalled.path != now.path)
    return fmt::format("the source was {} and is {}", journalled.path, now.path);
  if (journalled.config_digest != now.config_digest) return "the source's config.json has changed";
  if (journalled.index_digest != now.index_digest) return "the source's index has changed";
  if (journalled.files.size() != now.files.size())
    return fmt::format("the source had {} shards and has {}", journalled.files.size(),
                       now.files.size());
  for (size_t i = 0; i < now.files.size(); ++i) {
    const SourceFingerprint::File &was = journalled.files[i], &is = now.files[i];
    if (was.name != is.name)
      return fmt::format("the source's shard {} has become {}", was.name, is.name);
    if (was.size != is.size)
      return fmt::format("the source's shard {} had {} bytes and has {}", is.name, was.size,
                         is.size);
    if (was.modified_ns != is.modified_ns)
      return fmt::format("the source's shard {} has another time stamp: it was written again",
                         is.name);
  }
  return "";
}

Result<ConversionState> ParseConversionState(std::string_view text, const std::string& file) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const OrderedJson json, ParseJsonStrictly(text, file));
  // The library's own accessors throw on a missing or mistyped field; here is where that ends.
  try {
    if (json.at("format") != kFormat || json.at("version") != kFormatVersion)
      return InvalidInput(
          "{}: is not a state of format {} version {}; it was written by another "
          "version of blockscale: finish with that one or start a new output folder",
          file, kFormat, kFormatVersion);
    ConversionState state{.int8_range = json.at("int8_range"),
                          .recipe = json.at("recipe").dump(),
                          .source = SourceFrom(json.at("source"))};
    for (const OrderedJson& shard : json.at("shards")) state.shards.push_back(ShardFrom(shard));
    return state;
  } catch (const nlohmann::json::exception& error) {
    return InvalidInput("{}: is damaged ({}); start again with a new output folder", file,
                        error.what());
  }
}

Journal::Journal(FileSystem& files, std::string folder, ConversionState state)
    : files_(files), folder_(std::move(folder)), state_(std::move(state)) {
  for (const FinishedShard& shard : state_.shards) shard_texts_.push_back(ToText(shard));
}

Status Journal::Save() {
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"int8_range\": \"{}\",\n\"recipe\": {},\n"
      "\"source\": {},\n"
      "\"shards\": [",
      kFormat, kFormatVersion, state_.int8_range, state_.recipe, ToJson(state_.source).dump(1));
  const char* separator = "\n";
  for (const std::string& shard : shard_texts_) {
    text += separator + shard;
    separator = ",\n";
  }
  text += "\n]\n}\n";
  return WriteFileAtomically(files_, folder_, kStateFileName, text);
}

Status Journal::AddShard(FinishedShard shard) {
  shard_texts_.push_back(ToText(shard));
  state_.shards.push_back(std::move(shard));
  return Save();
}

}  // namespace blockscale
