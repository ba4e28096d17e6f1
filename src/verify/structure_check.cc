#include "verify/structure_check.h"

#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "checkpoint/json_reader.h"
#include "checkpoint/side_files.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kModelOptConfigFile = "hf_quant_config.json";
constexpr std::string_view kCodeOrWeights[] = {".py", ".bin",     ".pt",   ".pth",  ".gguf",
                                               ".h5", ".msgpack", ".ckpt", ".onnx", ".partial"};
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

void Fail(std::vector<VerifyFailure>* failures, const std::string& object, std::string message) {
  failures->push_back({object, std::move(message)});
}

// One field of the quantisation config that must have one value; `path` is a JSON pointer.
void Expect(const OrderedJson& config, const std::string& path, const OrderedJson& value,
            std::vector<VerifyFailure>* failures) {
  const OrderedJson::json_pointer pointer(path);
  const OrderedJson found = config.contains(pointer) ? config.at(pointer) : OrderedJson();
  if (found == value) return;
  Fail(failures, kConfigFileName,
       fmt::format("quantization_config{} is {}, not {}", path, found.dump().substr(0, 120),
                   value.dump()));
}

void CheckEnvelope(const OrderedJson& config, std::vector<VerifyFailure>* failures) {
  Expect(config, "/quant_method", "compressed-tensors", failures);
  Expect(config, "/format", "int-quantized", failures);
  Expect(config, "/quantization_status", "compressed", failures);
  const std::string group = "/config_groups/group_0";
  Expect(config, group + "/targets", {"Linear"}, failures);
  if (const auto groups = config.find("config_groups");
      groups != config.end() && groups->size() > 1)
    Fail(failures, kConfigFileName,
         fmt::format("quantization_config/config_groups has {} groups, limit 1", groups->size()));
  for (const auto& [part, strategy, dynamic] :
       {std::tuple{"/weights", "channel", false}, {"/input_activations", "token", true}}) {
    Expect(config, group + part + "/num_bits", 8, failures);
    Expect(config, group + part + "/type", "int", failures);
    Expect(config, group + part + "/symmetric", true, failures);
    Expect(config, group + part + "/strategy", strategy, failures);
    Expect(config, group + part + "/dynamic", dynamic, failures);
  }
}

// Nothing but what the converter writes: a field more would change how a runtime loads the rest.
void ExpectKeys(const OrderedJson& object, const std::string& where,
                std::initializer_list<std::string_view> known,
                std::vector<VerifyFailure>* failures) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      Fail(failures, kConfigFileName,
           fmt::format("quantization_config{}/{} is {}, which does not belong there", where, key,
                       value.dump().substr(0, 120)));
}

void CheckNothingElse(const OrderedJson& config, std::vector<VerifyFailure>* failures) {
  ExpectKeys(config, "",
             {"quant_method", "format", "quantization_status", "global_compression_ratio",
              "config_groups", "ignore"},
             failures);
  const OrderedJson::json_pointer group("/config_groups/group_0");
  if (!config.contains(group)) return;
  ExpectKeys(config.at(group), group.to_string(), {"targets", "weights", "input_activations"},
             failures);
  for (const char* part : {"weights", "input_activations"})
    if (config.at(group).is_object() && config.at(group).contains(part))
      ExpectKeys(config.at(group).at(part), group.to_string() + "/" + part,
                 {"num_bits", "type", "symmetric", "strategy", "dynamic"}, failures);
}

bool IsNormName(const std::string& module) {
  return module.find("norm") != std::string::npos && module.find("proj") == std::string::npos;
}

bool IsEmbeddingName(const std::string& module) {
  return module.find("embed") != std::string::npos;
}

// The ignore list as vLLM reads it: exact names, and "re:" rules anchored at the start only.
class IgnoreRules {
 public:
  explicit IgnoreRules(const OrderedJson& ignore) {
    for (const OrderedJson& entry : ignore) {
      if (!entry.is_string()) continue;
      const std::string text = entry.get<std::string>();
      if (!text.starts_with("re:")) {
        names_.insert(text);
        continue;
      }
      // One that is none covers nothing: what it was meant for is then reported as not ignored.
      auto rule = std::make_unique<const re2::RE2>(text.substr(3), re2::RE2::Quiet);
      if (rule->ok()) rules_.push_back(std::move(rule));
    }
  }

  bool Cover(const std::string& module) const {
    return names_.contains(module) ||
           std::any_of(rules_.begin(), rules_.end(), [&](const auto& rule) {
             return rule->Match(module, 0, module.size(), re2::RE2::ANCHOR_START, nullptr, 0);
           });
  }

 private:
  std::unordered_set<std::string> names_;
  std::vector<std::unique_ptr<const re2::RE2>> rules_;
};

// Byte ranges of two readers, compared in pieces.
template <typename ReadA, typename ReadB>
Result<bool> SameBytes(uint64_t size, ReadA read_a, ReadB read_b) {
  std::vector<std::byte> a(std::min(size, kChunkBytes)), b(a.size());
  for (uint64_t offset = 0; offset < size; offset += kChunkBytes) {
    const uint64_t count = std::min(kChunkBytes, size - offset);
    BLOCKSCALE_RETURN_IF_ERROR(read_a(offset, std::span(a).first(count)));
    BLOCKSCALE_RETURN_IF_ERROR(read_b(offset, std::span(b).first(count)));
    if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin()))
      return false;
  }
  return true;
}

// The names that the result must hold, apart from the kept ones: matrices and their new scales; and
// the scales of the source, which it must not keep.
struct ConvertedNames {
  std::unordered_set<std::string> made, dropped;
};

ConvertedNames NamesOfMatrices(const Checkpoint& source) {
  ConvertedNames names;
  for (const TensorRef& tensor : source.tensors()) {
    if (tensor.info->dtype != DType::kF8E4M3) continue;
    const std::string& name = tensor.info->name;
    const std::string module = name.substr(0, name.rfind('.'));
    names.made.insert(name);
    names.made.insert(module + ".weight_scale");
    for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale"})
      names.dropped.insert(module + suffix);
  }
  return names;
}

// A shard that the index names and that did not open: missing and broken ones do not hold; that the
// machine cannot read one means that nothing can be said.
Status ExplainUnopened(const Checkpoint& converted, const std::string& shard,
                       std::vector<VerifyFailure>* failures) {
  const std::string path = JoinPath(converted.folder(), shard);
  if (!converted.files().Exists(path)) {
    Fail(failures, shard, "is missing, but the index names it");
    return OkStatus();
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                              converted.files().OpenForRead(path));
  const Status status = ReadSafetensorsHeader(*file).status();
  if (status.ok())
    return {StatusCode::kIo, path + ": could not be read at first, and now it can; run it again"};
  if (status.code() != StatusCode::kInvalidInput) return status;
  Fail(failures, shard, status.message());
  return OkStatus();
}

// Every entry of the index must lead to a tensor.
Status CheckEntries(const Checkpoint& converted, std::vector<VerifyFailure>* failures) {
  std::unordered_set<std::string> opened, explained;
  for (const std::unique_ptr<Shard>& shard : converted.shards()) opened.insert(shard->name);
  for (const auto& [tensor, shard] : converted.index().weight_map) {
    if (opened.contains(shard)) {
      if (!converted.Find(tensor))
        Fail(failures, kIndexFileName,
             fmt::format("places tensor '{}' in {}, which does not hold it", tensor, shard));
    } else if (explained.insert(shard).second) {
      BLOCKSCALE_RETURN_IF_ERROR(ExplainUnopened(converted, shard, failures));
    }
  }
  return OkStatus();
}

// Code and weights that the source does not have: a runtime would run the one and may load the
// other.
Status CheckExtraFiles(const std::vector<std::string>& source_names, const Checkpoint& converted,
                       std::vector<VerifyFailure>* failures) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              converted.files().List(converted.folder()));
  for (const std::string& name : names) {
    const bool matters = std::any_of(
        std::begin(kCodeOrWeights), std::end(kCodeOrWeights),
        [&](std::string_view ending) { return std::string_view(name).ends_with(ending); });
    if (matters && std::find(source_names.begin(), source_names.end(), name) == source_names.end())
      Fail(failures, name, "does not belong there: the source has no file of that name");
  }
  return OkStatus();
}

}  // namespace

Status CompareTensor(const Checkpoint& source, const TensorRef& from, const Checkpoint& converted,
                     const TensorRef& to, std::vector<VerifyFailure>* failures) {
  if (from.info->dtype != to.info->dtype || from.info->shape != to.info->shape) {
    Fail(failures, from.info->name,
         fmt::format("was {} {} and is {} {}; it must be kept as it is", NameOf(from.info->dtype),
                     ShapeText(from.info->shape), NameOf(to.info->dtype),
                     ShapeText(to.info->shape)));
    return OkStatus();
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(const bool same, SameBytes(
                                                   from.info->bytes(),
                                                   [&](uint64_t offset, std::span<std::byte> out) {
                                                     return source.Read(from, offset, out);
                                                   },
                                                   [&](uint64_t offset, std::span<std::byte> out) {
                                                     return converted.Read(to, offset, out);
                                                   }));
  if (!same)
    Fail(failures, from.info->name, "differs from the source; it must be kept bit for bit");
  return OkStatus();
}

void CheckIgnoreList(const Checkpoint& converted, const nlohmann::ordered_json& ignore,
                     const std::function<bool(const TensorInfo&)>& is_quantised,
                     std::vector<VerifyFailure>* failures) {
  const IgnoreRules rules(ignore);
  uint64_t wrong = 0;
  std::string first;
  for (const TensorRef& tensor : converted.tensors()) {
    const TensorInfo& info = *tensor.info;
    if (info.shape.size() != 2 || !info.name.ends_with(".weight")) continue;
    const std::string module = info.name.substr(0, info.name.size() - 7);
    if (IsNormName(module) || IsEmbeddingName(module)) continue;
    const bool quantised = is_quantised(info);
    if (rules.Cover(module) != quantised) continue;
    if (wrong++ == 0)
      first = fmt::format("{} is {} and {}", module, NameOf(info.dtype),
                          quantised ? "ignored" : "not ignored");
  }
  if (wrong > 0)
    Fail(failures, kConfigFileName,
         fmt::format("the ignore list does not fit {} modules (the first: {})", wrong, first));
}

void CheckOtherFields(const Checkpoint& source, const Checkpoint& converted,
                      std::vector<VerifyFailure>* failures) {
  // Without both quantisations, the documents must be one text: values and order.
  OrderedJson before = source.config().json, after = converted.config().json;
  const auto blank = [](OrderedJson& document, const HfConfig& parsed) {
    if (!parsed.quantization) return;
    OrderedJson* at = &document;
    const std::vector<std::string>& path = parsed.quantization->json_path;
    for (size_t i = 0; i + 1 < path.size(); ++i) at = &(*at)[path[i]];
    at->erase(path.back());
  };
  blank(before, source.config());
  blank(after, converted.config());
  if (before.dump() == after.dump()) return;
  std::string first = "the order of the fields";
  for (const auto& [key, value] : before.items())
    if (!after.contains(key) || after.at(key) != value) {
      first = fmt::format("field '{}'", key);
      break;
    }
  Fail(failures, kConfigFileName, first + " differs from the source's config");
}

void CheckConfig(const Checkpoint& source, const Checkpoint& converted,
                 std::vector<VerifyFailure>* failures) {
  const auto& quantization = converted.config().quantization;
  if (!quantization) return Fail(failures, kConfigFileName, "has no quantization_config");
  const OrderedJson& config = converted.config().quantization_json();
  CheckEnvelope(config, failures);
  CheckNothingElse(config, failures);
  const auto ignore = config.find("ignore");
  if (ignore == config.end() || !ignore->is_array())
    Fail(failures, kConfigFileName, "quantization_config has no ignore list");
  else
    CheckIgnoreList(
        converted, *ignore, [](const TensorInfo& info) { return info.dtype == DType::kI8; },
        failures);
  CheckOtherFields(source, converted, failures);
}

Status CheckIndex(const Checkpoint& converted, std::vector<VerifyFailure>* failures) {
  if (converted.index_text().empty()) Fail(failures, kIndexFileName, "is missing");
  const uint64_t bytes = converted.data_bytes();
  if (converted.index().total_size != bytes)
    Fail(failures, kIndexFileName,
         fmt::format("total_size is {}, but the tensors have {} bytes",
                     converted.index().total_size ? std::to_string(*converted.index().total_size)
                                                  : "missing",
                     bytes));
  BLOCKSCALE_RETURN_IF_ERROR(CheckEntries(converted, failures));
  std::unordered_set<std::string> named;
  for (const auto& [tensor, shard] : converted.index().weight_map) named.insert(shard);
  for (const std::unique_ptr<Shard>& shard : converted.shards()) {
    for (const TensorInfo& info : shard->header.tensors)
      if (const TensorRef found = converted.Find(info.name); found.info != &info)
        Fail(failures, shard->name,
             fmt::format("holds tensor '{}', which the index does not place there", info.name));
    const auto& metadata = shard->header.metadata;
    if (std::find(metadata.begin(), metadata.end(),
                  std::pair<std::string, std::string>("format", "pt")) == metadata.end())
      Fail(failures, shard->name, "its metadata does not say format 'pt'");
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              converted.files().List(converted.folder()));
  for (const std::string& name : names)
    if (name.ends_with(".safetensors") && !named.contains(name))
      Fail(failures, name, "lies in the folder, but the index does not name it");
  return OkStatus();
}

Status CheckSideFiles(const Checkpoint& source, const Checkpoint& converted,
                      std::vector<VerifyFailure>* failures) {
  FileSystem& files = converted.files();
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              ListSideFiles(source.files(), source.folder()));
  BLOCKSCALE_RETURN_IF_ERROR(CheckExtraFiles(names, converted, failures));
  for (const std::string& name : names) {
    if (name == kModelOptConfigFile) continue;  // speaks of the quantisation, and changes with it
    const std::string path = JoinPath(converted.folder(), name);
    if (!files.Exists(path)) {
      Fail(failures, name, "is missing in the converted checkpoint");
      continue;
    }
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> a,
                                source.files().OpenForRead(JoinPath(source.folder(), name)));
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> b, files.OpenForRead(path));
    bool same = a->facts().size == b->facts().size;
    if (same) {
      BLOCKSCALE_ASSIGN_OR_RETURN(
          same, SameBytes(
                    a->facts().size,
                    [&](uint64_t at, std::span<std::byte> out) { return a->ReadAt(at, out); },
                    [&](uint64_t at, std::span<std::byte> out) { return b->ReadAt(at, out); }));
    }
    if (!same) Fail(failures, name, "differs from the source's file");
  }
  return OkStatus();
}

Status CheckKeptTensors(const Checkpoint& source, const Checkpoint& converted,
                        std::vector<VerifyFailure>* failures, uint64_t* compared) {
  const ConvertedNames names = NamesOfMatrices(source);
  std::unordered_set<std::string> expected = names.made;
  for (const TensorRef& tensor : source.tensors()) {
    const std::string& name = tensor.info->name;
    if (tensor.info->dtype == DType::kF8E4M3 || names.dropped.contains(name)) continue;
    expected.insert(name);
    const TensorRef found = converted.Find(name);
    if (!found) {
      Fail(failures, name, "is missing in the converted checkpoint");
      continue;
    }
    BLOCKSCALE_RETURN_IF_ERROR(CompareTensor(source, tensor, converted, found, failures));
    ++*compared;
  }
  for (const TensorRef& tensor : converted.tensors())
    if (!expected.contains(tensor.info->name))
      Fail(failures, tensor.info->name,
           "does not belong there: the source has nothing of that name");
  return OkStatus();
}

}  // namespace blockscale
