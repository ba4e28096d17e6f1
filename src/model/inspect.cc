#include "model/inspect.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "checkpoint/fp8_matrix.h"
#include "model/data_scan.h"

namespace blockscale {
namespace {

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
    BLOCKSCALE_RETURN_IF_ERROR(CheckFolder(""));
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
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      if (tensor.info->dtype != DType::kF8E4M3) continue;
      Result<Fp8Matrix> matrix = MatchFp8Matrix(checkpoint_, tensor);
      ++out_.fp8_matrices;
      if (!matrix.ok()) {
        Find("scale", matrix.status().message());
        continue;
      }
      matrices_.push_back(std::move(*matrix));
      scale_of_.emplace(matrices_.back().scale.info, matrices_.size() - 1);
      matrix_of_.emplace(matrices_.back().weight.info, matrices_.size() - 1);
    }
  }

  std::string SchemeOfMatrix(const Fp8Matrix& matrix) const {
    if (matrix.grid_rows == 1 && matrix.grid_columns == 1 && matrix.block.rows == matrix.rows)
      return "fp8-tensor";
    return fmt::format("fp8-block {}x{}", matrix.block.rows, matrix.block.columns);
  }

  std::string SchemeOf(const TensorRef& tensor) const {
    if (const auto found = matrix_of_.find(tensor.info); found != matrix_of_.end())
      return SchemeOfMatrix(matrices_[found->second]);
    if (const auto found = scale_of_.find(tensor.info); found != scale_of_.end())
      return SchemeOfMatrix(matrices_[found->second]);
    const std::string& name = tensor.info->name;
    if (tensor.info->dtype == DType::kI8 && checkpoint_.Find(name + "_scale"))
      return "int8-channel";
    if (name.ends_with(".weight_scale")) {
      const TensorRef weight = checkpoint_.Find(name.substr(0, name.size() - 6));
      if (weight && weight.info->dtype == DType::kI8) return "int8-channel";
    }
    if (tensor.info->dtype == DType::kF8E4M3) return "F8_E4M3 without a usable scale";
    std::string scheme(NameOf(tensor.info->dtype));
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return scheme;
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

  // Files of weights that nobody reads, here and one folder down ("original/").
  Status CheckFolder(const std::string& inner) {
    const std::string here =
        inner.empty() ? checkpoint_.folder() : JoinPath(checkpoint_.folder(), inner);
    FileSystem& files = checkpoint_.files();
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(here));
    std::unordered_set<std::string> indexed;
    for (const auto& [tensor, shard] : checkpoint_.index().weight_map) indexed.insert(shard);
    for (const std::string& name : names) {
      const std::string path = inner.empty() ? name : inner + "/" + name;
      if (name.ends_with(".safetensors") && !indexed.contains(path)) {
        Find("unindexed-shard",
             fmt::format("{}: the index does not name it; it is not read", path));
        continue;
      }
      const Result<FileFacts> facts = files.Stat(JoinPath(here, name));
      if (inner.empty() && facts.ok() && facts->is_directory)
        BLOCKSCALE_RETURN_IF_ERROR(CheckFolder(name));
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
    const size_t count = checkpoint_.shards().size();
    bool starts_at_zero = false;
    for (const std::unique_ptr<Shard>& shard : checkpoint_.shards()) {
      const std::string& name = shard->name;
      const size_t of = name.find("-of-");
      const size_t dash = of == std::string::npos ? of : name.rfind('-', of - 1);
      if (dash == std::string::npos) continue;
      uint64_t number = 0, total = 0;
      std::from_chars(name.data() + dash + 1, name.data() + of, number);
      std::from_chars(name.data() + of + 4, name.data() + name.size(), total);
      starts_at_zero |= number == 0;
      if (total == count) continue;
      Find("shard-count",
           fmt::format("{}: says {} shards, the index names {}; names are not trusted", name, total,
                       count));
      break;
    }
    if (starts_at_zero)
      Find("shard-count", "shards are numbered from 0, not from 1; names are not trusted");
  }

  void CheckConfig() {
    const std::string& method = out_.quant_method;
    const bool int8 = out_.schemes.contains("int8-channel");
    const bool fp8 = out_.fp8_matrices > 0;
    if (fp8 && method != "fp8" && method != "compressed-tensors")
      Find("config", fmt::format("{}: quant_method is '{}', but there are {} F8_E4M3 matrices",
                                 kConfigFileName, method, out_.fp8_matrices));
    if (method == "fp8" && !fp8)
      Find("config", fmt::format("{}: quant_method is 'fp8', but there is no F8_E4M3 matrix",
                                 kConfigFileName));
    if (int8 && method != "compressed-tensors")
      Find("config", fmt::format("{}: quant_method is '{}', but there are INT8 matrices",
                                 kConfigFileName, method));
  }

  void ScanData() {
    out_.data_read = true;
    std::vector<std::vector<Finding>> found(matrices_.size());
    oneapi::tbb::parallel_for(size_t{0}, matrices_.size(),
                              [&](size_t i) { found[i] = ScanMatrix(checkpoint_, matrices_[i]); });
    for (std::vector<Finding>& findings : found)
      for (Finding& finding : findings) out_.findings.push_back(std::move(finding));
  }

  const Checkpoint& checkpoint_;
  Inspection& out_;
  std::vector<Fp8Matrix> matrices_;
  std::unordered_map<const TensorInfo*, size_t> matrix_of_, scale_of_;
};

}  // namespace

Result<Inspection> InspectCheckpoint(FileSystem& files, const std::string& folder, bool read_data) {
  Inspection inspection;
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                              Checkpoint::Open(files, folder, &inspection.findings));
  BLOCKSCALE_RETURN_IF_ERROR(Inspector(checkpoint, &inspection).Run(read_data));
  return inspection;
}

}  // namespace blockscale
