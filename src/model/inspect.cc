#include "model/inspect.h"

#include <oneapi/tbb/parallel_for.h>

#include <optional>
#include <set>

#include "model/data_scan.h"
#include "model/matrix_schemes.h"
#include "model/shard_name.h"

namespace blockscale {
namespace {

constexpr int kMaxFolderDepth = 4;

// Walks one checkpoint and fills an Inspection.
class Inspector {
 public:
  Inspector(const Checkpoint& checkpoint, Inspection* out) : checkpoint_(checkpoint), out_(*out) {}

  Status Run(bool read_data) {
    const HfConfig& config = checkpoint_.config();
    out_.folder = checkpoint_.folder();
    out_.family = FamilyOf(config);
    out_.model_type = config.model_type;
    if (config.quantization) out_.quant_method = config.quantization->quant_method;
    FindMatrices();
    CountTensors();
    CheckShards();
    BLOCKSCALE_RETURN_IF_ERROR(CheckFolder("", 0));
    CheckTotalSize();
    CheckShardNames();
    CheckConfig();
    if (read_data) ScanData();
    return OkStatus();
  }

 private:
  void Find(const char* kind, std::string message) {
    out_.findings.push_back({kind, std::move(message)});
  }

  void FindMatrices() {
    schemes_ = FindMatrixSchemes(checkpoint_);
    out_.fp8_matrices = schemes_.fp8_matrices();
    out_.int8_matrices = schemes_.int8_matrices;
    out_.dialects = schemes_.dialects;
    for (Finding& finding : schemes_.findings) out_.findings.push_back(std::move(finding));
    for (const auto& [tensor, shard] : checkpoint_.index().weight_map) indexed_.insert(shard);
  }

  std::string SchemeOf(const TensorRef& tensor) const {
    const auto found = schemes_.scheme_of.find(tensor.info);
    return found != schemes_.scheme_of.end() ? found->second : PlainScheme(tensor.info->dtype);
  }

  void CountTensors() {
    const auto add = [](TensorCount& count, const TensorRef& tensor) {
      ++count.tensors;
      count.bytes += tensor.info->bytes();
    };
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      add(out_.total, tensor);
      add(out_.schemes[SchemeOf(tensor)], tensor);
      add(out_.classes[ClassOf(tensor.info->name)], tensor);
    }
  }

  void CheckShards() {
    for (const std::unique_ptr<Shard>& shard : checkpoint_.shards()) {
      out_.shards.push_back(
          {shard->name, {shard->header.tensors.size(), shard->header.data_bytes()}});
      for (const TensorInfo& info : shard->header.tensors) {
        const TensorRef indexed = checkpoint_.Find(info.name);
        if (indexed.info == &info) continue;
        Find("unindexed-tensor",
             indexed ? fmt::format("{}: holds '{}' too, which the index places in {}; this copy is "
                                   "not read",
                                   shard->name, info.name, indexed.shard->name)
                     : fmt::format("{}: holds '{}', which the index does not name; it is not read",
                                   shard->name, info.name));
      }
    }
  }

  // Files of weights that nobody reads, here and in subfolders ("original/"). The depth is limited
  // because a link may lead upward.
  Status CheckFolder(const std::string& inner, int depth) {
    const std::string here =
        inner.empty() ? checkpoint_.folder() : JoinPath(checkpoint_.folder(), inner);
    FileSystem& files = checkpoint_.files();
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(here));
    for (const std::string& name : names) {
      const std::string path = inner.empty() ? name : JoinPath(inner, name);
      const Result<FileFacts> facts = files.Stat(JoinPath(here, name));
      if (facts.ok() && facts->is_directory) {
        if (depth == kMaxFolderDepth) continue;
        const Status status = CheckFolder(path, depth + 1);
        if (!status.ok()) Find("unreadable-folder", status.message());
      } else if (name.ends_with(".safetensors") && !indexed_.contains(path)) {
        Find("unindexed-shard",
             fmt::format("{}: the index does not name it; it is not read", path));
      }
    }
    return OkStatus();
  }

  void CheckTotalSize() {
    if (checkpoint_.index_text().empty()) return;
    const auto& total = checkpoint_.index().total_size;
    if (total == out_.total.bytes) return;
    Find("total-size",
         fmt::format("{}: total_size is {}, the tensors have {} bytes", kIndexFileName,
                     total ? std::to_string(*total) : "missing", out_.total.bytes));
  }

  void CheckShardNames() {
    bool starts_at_zero = false, told = false;
    for (const std::string& name : indexed_) {
      const std::optional<ShardNumber> claim = ParseShardName(name);
      if (!claim) continue;
      starts_at_zero |= claim->number == 0;
      if (claim->count == indexed_.size() || told) continue;
      told = true;
      Find("shard-count",
           fmt::format("{}: says {} shards, the index names {}; names are not trusted", name,
                       claim->count, indexed_.size()));
    }
    if (starts_at_zero)
      Find("shard-count", "shards are numbered from 0, not from 1; names are not trusted");
  }

  void CheckConfig() {
    const std::string& method = out_.quant_method;
    const uint64_t fp8 = out_.fp8_matrices, int8 = out_.int8_matrices;
    const auto wrong = [&](const std::string& text) {
      Find("config", fmt::format("{}: {}", kConfigFileName, text));
    };
    if (fp8 > 0 && method != "fp8" && method != "compressed-tensors")
      wrong(fmt::format("quant_method is '{}', but there are {} F8_E4M3 matrices", method, fp8));
    if (method == "fp8" && fp8 == 0) wrong("quant_method is 'fp8', but there is no F8_E4M3 matrix");
    if (int8 > 0 && method != "compressed-tensors")
      wrong(fmt::format("quant_method is '{}', but there are INT8 matrices", method));
    if (method == "compressed-tensors") CheckCompressedTensors(wrong);
    CheckFp8Words(wrong);
    CheckBlockSize(wrong);
  }

  // FP8 of another kind, or in other words than the tensors'.
  template <typename Wrong>
  void CheckFp8Words(const Wrong& wrong) {
    if (!checkpoint_.config().quantization || out_.fp8_matrices == 0) return;
    const auto& json = checkpoint_.config().quantization_json();
    if (const auto kind = json.find("fmt"); kind != json.end() && kind->is_string())
      if (kind->get<std::string>().find("e4m3") == std::string::npos)
        wrong(fmt::format("fmt is {}, but the matrices are F8_E4M3", kind->dump()));
    const auto deepseek = out_.dialects.find("deepseek");
    if (out_.quant_method == "compressed-tensors" && deepseek != out_.dialects.end())
      wrong(
          fmt::format("quant_method is 'compressed-tensors', but {} matrices have a "
                      "weight_scale_inv, which is not how it spells scales",
                      deepseek->second));
  }

  template <typename Wrong>
  void CheckCompressedTensors(const Wrong& wrong) {
    const std::string& format = checkpoint_.config().quantization->format;
    const uint64_t fp8 = out_.fp8_matrices, int8 = out_.int8_matrices;
    if (fp8 + int8 + schemes_.other_matrices == 0)
      return wrong("quant_method is 'compressed-tensors', but no matrix has scales");
    if (format == "int-quantized" && fp8 > 0)
      wrong(fmt::format("format is 'int-quantized', but there are {} F8_E4M3 matrices", fp8));
    if (format == "float-quantized" && int8 > 0)
      wrong(fmt::format("format is 'float-quantized', but there are {} INT8 matrices", int8));
  }

  // One scale over a matrix that the config says to consist of several blocks.
  template <typename Wrong>
  void CheckBlockSize(const Wrong& wrong) {
    const auto& quantization = checkpoint_.config().quantization;
    if (!quantization || !quantization->block_size) return;
    const BlockSize block = *quantization->block_size;
    uint64_t count = 0;
    const Fp8Matrix* first = nullptr;
    for (const Fp8Matrix& matrix : schemes_.fp8) {
      const bool single = matrix.grid_rows == 1 && matrix.grid_columns == 1;
      if (!single || (matrix.rows <= block.rows && matrix.columns <= block.columns)) continue;
      if (count++ == 0) first = &matrix;
    }
    if (count == 0) return;
    wrong(
        fmt::format("weight_block_size is [{}, {}], but {} matrices have one scale, the first is "
                    "'{}' {}",
                    block.rows, block.columns, count, first->weight.info->name,
                    ShapeText(first->weight.info->shape)));
  }

  // Everything that ScanMatrix and its like have to look at, one task each.
  void ScanData() {
    out_.data_read = true;
    const size_t matrices = schemes_.fp8.size(), unscaled = schemes_.fp8_unscaled.size();
    std::vector<TensorRef> scales = schemes_.int8_scales;
    scales.insert(scales.end(), schemes_.other_scales.begin(), schemes_.other_scales.end());
    std::vector<std::vector<Finding>> found(matrices + unscaled + scales.size());
    oneapi::tbb::parallel_for(size_t{0}, found.size(), [&](size_t i) {
      found[i] = i < matrices ? ScanMatrix(checkpoint_, schemes_.fp8[i])
                 : i < matrices + unscaled
                     ? ScanCodes(checkpoint_, schemes_.fp8_unscaled[i - matrices])
                     : ScanScales(checkpoint_, scales[i - matrices - unscaled]);
    });
    for (std::vector<Finding>& findings : found)
      for (Finding& finding : findings) out_.findings.push_back(std::move(finding));
  }

  const Checkpoint& checkpoint_;
  Inspection& out_;
  MatrixSchemes schemes_;
  std::set<std::string> indexed_;  // shards that the index names, also those that are missing
};

}  // namespace

Result<Inspection> InspectCheckpoint(FileSystem& files, const std::string& folder, bool read_data) {
  Inspection inspection;
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                              Checkpoint::Open(files, folder, &inspection.findings));
  BLOCKSCALE_RETURN_IF_ERROR(Inspector(checkpoint, &inspection).Run(read_data));
  // Names of files and tensors come from outside and may hold line breaks or terminal sequences.
  for (Finding& finding : inspection.findings) finding.message = OneLine(finding.message);
  return inspection;
}

}  // namespace blockscale
