#include "model/checkpoint_layer.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "base/status.h"
#include "checkpoint/stored_rows.h"
#include "model/families.h"

namespace blockscale {
namespace {

enum class Projection { kGate, kUp, kDown };

struct Place {
  uint64_t layer = 0;
  uint64_t expert = 0;
  Projection projection = Projection::kGate;
};

// The whole number between `prefix` and the next dot; `rest` is moved behind that dot.
std::optional<uint64_t> NumberAfter(std::string_view prefix, std::string_view* rest) {
  const size_t at = rest->find(prefix);
  if (at == rest->npos) return std::nullopt;
  const std::string_view tail = rest->substr(at + prefix.size());
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(tail.data(), tail.data() + tail.size(), value);
  const auto length = static_cast<size_t>(end - tail.data());
  if (error != std::errc() || length >= tail.size() || tail[length] != '.') return std::nullopt;
  *rest = tail.substr(length + 1);
  return value;
}

// "model.layers.3.mlp.experts.7.gate_proj" and the like; nullopt for what is no routed expert.
std::optional<Place> PlaceOf(std::string_view module) {
  std::string_view rest = module;
  const auto layer = NumberAfter("layers.", &rest);
  if (!layer) return std::nullopt;
  const auto expert = NumberAfter("experts.", &rest);
  if (!expert) return std::nullopt;
  if (rest == "w1" || rest == "gate_proj") return Place{*layer, *expert, Projection::kGate};
  if (rest == "w3" || rest == "up_proj") return Place{*layer, *expert, Projection::kUp};
  if (rest == "w2" || rest == "down_proj") return Place{*layer, *expert, Projection::kDown};
  return std::nullopt;
}

std::optional<double> ConfigFloat(const HfConfig& config, const char* key) {
  for (const auto* object :
       {&config.json,
        config.json.contains("text_config") ? &config.json["text_config"] : &config.json})
    if (object->is_object() && object->contains(key) && (*object)[key].is_number())
      return (*object)[key].get<double>();
  return std::nullopt;
}

std::string ConfigText(const HfConfig& config, const char* key) {
  for (const auto* object :
       {&config.json,
        config.json.contains("text_config") ? &config.json["text_config"] : &config.json})
    if (object->is_object() && object->contains(key) && (*object)[key].is_string())
      return (*object)[key].get<std::string>();
  return "";
}

Result<Activation> ActivationOf(const HfConfig& config) {
  const auto limit = ConfigFloat(config, "swiglu_limit");
  const float clamp = limit ? static_cast<float>(*limit) : kNoLimit;
  if (FamilyOf(config) == Family::kGptOss) return SwiGlu(1.702f, 1.0f, limit ? clamp : 7.0f);
  const std::string name = ConfigText(config, "hidden_act");
  if (name == "situ")
    return SiTU(static_cast<float>(ConfigFloat(config, "situ_beta").value_or(4)),
                static_cast<float>(ConfigFloat(config, "situ_linear_beta").value_or(25)));
  if (name == "silu" || name == "swish" || name == "swiglu" || (name.empty() && limit))
    return SwiGlu(1.0f, 0.0f, clamp);
  if (name == "gelu_pytorch_tanh") return MakeActivation(ActivationKind::kGeGluTanh);
  if (name == "gelu") return MakeActivation(ActivationKind::kGeGlu);
  return InvalidInput(
      "config.json: hidden_act is '{}'; silu, situ, gelu and gelu_pytorch_tanh are "
      "known",
      name);
}

Result<uint32_t> SlotsOf(const HfConfig& config) {
  for (const char* key : {"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                          "experts_per_token", "num_selected_experts"})
    if (const auto value = config.Number(key)) return static_cast<uint32_t>(*value);
  return InvalidInput(
      "config.json: no num_experts_per_tok: how many experts a token takes is not in "
      "the tensors");
}

RowScheme UsualInputs(Scheme weights) {
  switch (weights) {
    case Scheme::kMxfp4:
    case Scheme::kMxfp8:
      return RowScheme::kMxfp8;
    case Scheme::kNvfp4:
      return RowScheme::kNvfp4;
    case Scheme::kFp8Block:
      return RowScheme::kFp8Token128;
    case Scheme::kFp8Channel:
    case Scheme::kFp8Tensor:
      return RowScheme::kFp8Token;
    case Scheme::kInt8Channel:
      return RowScheme::kInt8Token;
    default:
      return RowScheme::kBf16;
  }
}

using ExpertMap = std::map<uint64_t, StoredExpert>;

Result<ExpertMap> ExpertsOf(const StoredMatrices& stored, uint64_t layer) {
  ExpertMap experts;
  std::set<uint64_t> layers;
  for (const StoredMatrix& matrix : stored.matrices) {
    const auto place = PlaceOf(matrix.module);
    if (!place) continue;
    layers.insert(place->layer);
    if (place->layer != layer) continue;
    StoredExpert& expert = experts[place->expert];
    (place->projection == Projection::kGate ? expert.gate
     : place->projection == Projection::kUp ? expert.up
                                            : expert.down) = matrix;
  }
  for (const StoredBias& bias : stored.biases) {
    const auto place = PlaceOf(bias.module);
    if (!place || place->layer != layer) continue;
    StoredExpert& expert = experts[place->expert];
    (place->projection == Projection::kGate ? expert.gate_bias
     : place->projection == Projection::kUp ? expert.up_bias
                                            : expert.down_bias) = bias;
  }
  if (!experts.empty()) return experts;
  if (layers.empty()) return InvalidInput("the checkpoint has no layer with experts");
  return InvalidInput("layer {} has no experts; layers {} to {} have", layer, *layers.begin(),
                      *layers.rbegin());
}

Status CheckAlike(uint64_t layer, uint64_t id, const StoredMatrix& matrix, const char* projection,
                  const StoredMatrix& first) {
  if (matrix.rows == 0)
    return InvalidInput("layer {} expert {} has no {} projection", layer, id, projection);
  if (matrix.rows == first.rows && matrix.columns == first.columns && matrix.spec == first.spec)
    return OkStatus();
  return InvalidInput(
      "{}: {} x {} of {}, but expert 0 has {} x {} of {}: experts of one layer must be "
      "alike",
      matrix.module, matrix.rows, matrix.columns, NameOf(matrix.spec.scheme), first.rows,
      first.columns, NameOf(first.spec.scheme));
}

Status CheckExperts(uint64_t layer, const ExpertMap& experts) {
  const StoredExpert& first = experts.begin()->second;
  uint64_t expected = 0;
  for (const auto& [id, expert] : experts) {
    if (id != expected++)
      return InvalidInput("layer {} has expert {} but no expert {}", layer, id, expected - 1);
    BLOCKSCALE_RETURN_IF_ERROR(CheckAlike(layer, id, expert.gate, "gate", first.gate));
    BLOCKSCALE_RETURN_IF_ERROR(CheckAlike(layer, id, expert.up, "up", first.gate));
    BLOCKSCALE_RETURN_IF_ERROR(CheckAlike(layer, id, expert.down, "down", first.down));
  }
  if (first.down.columns == first.gate.rows && first.down.rows == first.gate.columns &&
      first.down.spec == first.gate.spec)
    return OkStatus();
  return InvalidInput(
      "layer {}: down is {} x {} of {}, gate {} x {} of {}: they do not fit together", layer,
      first.down.rows, first.down.columns, NameOf(first.down.spec.scheme), first.gate.rows,
      first.gate.columns, NameOf(first.gate.spec.scheme));
}

class CheckpointWeights final : public LayerWeights {
 public:
  CheckpointWeights(const Checkpoint& checkpoint, const CheckpointLayer& layer,
                    std::vector<uint32_t> ids)
      : checkpoint_(checkpoint), layer_(layer), ids_(std::move(ids)) {}

  Result<ExpertWeights> Expert(uint32_t local) const override {
    BLOCKSCALE_CHECK(local < ids_.size(), "expert {} of {}", local, ids_.size());
    const StoredExpert& stored = layer_.experts[ids_[local]];
    auto owned = std::make_shared<Owned>();
    ExpertWeights expert{.owner = owned};
    BLOCKSCALE_RETURN_IF_ERROR(Read(stored.gate, stored.gate_bias, &owned->gate, &expert.gate));
    BLOCKSCALE_RETURN_IF_ERROR(Read(stored.up, stored.up_bias, &owned->up, &expert.up));
    BLOCKSCALE_RETURN_IF_ERROR(Read(stored.down, stored.down_bias, &owned->down, &expert.down));
    return expert;
  }

 private:
  struct OwnedMatrix {
    StoredRows rows;
    std::vector<float> bias;
  };
  struct Owned {
    OwnedMatrix gate, up, down;
  };

  Status Read(const StoredMatrix& stored, const StoredBias& bias, OwnedMatrix* owned,
              MatrixRows* matrix) const {
    BLOCKSCALE_ASSIGN_OR_RETURN(matrix->global, ReadGlobalScale(checkpoint_, stored));
    BLOCKSCALE_RETURN_IF_ERROR(
        ReadStoredRows(checkpoint_, stored, matrix->global, 0, stored.rows, &owned->rows));
    matrix->spec = stored.spec;
    matrix->rows = stored.rows;
    matrix->columns = stored.columns;
    matrix->codes = owned->rows.codes.data();
    matrix->scales = owned->rows.scales.data();
    if (!bias.values) return OkStatus();
    BLOCKSCALE_RETURN_IF_ERROR(ReadBias(bias, &owned->bias));
    matrix->bias = owned->bias.data();
    return OkStatus();
  }

  Status ReadBias(const StoredBias& bias, std::vector<float>* values) const {
    const DType dtype = bias.values.info->dtype;
    if (dtype != DType::kBF16 && dtype != DType::kF32)
      return InvalidInput("{} is {}; biases are BF16 or F32", bias.values.info->name,
                          NameOf(dtype));
    const size_t bytes = static_cast<size_t>(BitsOf(dtype)) / 8;
    values->resize(bias.count);
    for (uint64_t i = 0; i < bias.count; ++i) {
      std::byte stored[4];
      BLOCKSCALE_RETURN_IF_ERROR(checkpoint_.Read(bias.values, (bias.first + i * bias.step) * bytes,
                                                  std::span(stored, bytes)));
      LoadValue(dtype, stored, &(*values)[i]);
    }
    return OkStatus();
  }

  static void LoadValue(DType dtype, const std::byte* stored, float* value) {
    if (dtype == DType::kF32) {
      std::memcpy(value, stored, 4);
      return;
    }
    uint16_t code = 0;
    std::memcpy(&code, stored, 2);
    *value = BF16::Decode(code);
  }

  const Checkpoint& checkpoint_;
  const CheckpointLayer& layer_;
  std::vector<uint32_t> ids_;
};

}  // namespace

Result<CheckpointLayer> FindLayer(const Checkpoint& checkpoint, uint64_t layer) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const StoredMatrices stored, FindStoredMatrices(checkpoint));
  BLOCKSCALE_ASSIGN_OR_RETURN(ExpertMap experts, ExpertsOf(stored, layer));
  BLOCKSCALE_RETURN_IF_ERROR(CheckExperts(layer, experts));
  CheckpointLayer found;
  const StoredMatrix& gate = experts.begin()->second.gate;
  MoeSpec& spec = found.spec;
  spec.experts = static_cast<uint32_t>(experts.size());
  BLOCKSCALE_ASSIGN_OR_RETURN(spec.top_k, SlotsOf(checkpoint.config()));
  BLOCKSCALE_ASSIGN_OR_RETURN(spec.activation, ActivationOf(checkpoint.config()));
  spec.hidden = static_cast<uint32_t>(gate.columns);
  spec.intermediate = static_cast<uint32_t>(gate.rows);
  spec.weights = gate.spec.scheme;
  if (gate.spec.scheme == Scheme::kInt4Group)
    spec.weight_group = static_cast<uint32_t>(gate.spec.block_columns);
  spec.inputs = UsualInputs(spec.weights);
  spec.biases = static_cast<bool>(experts.begin()->second.gate_bias.values);
  spec.order = GateUpOrder::kGateUp;  // w1 and w3 are apart: any order of our own
  BLOCKSCALE_RETURN_IF_ERROR(ValidateMoeSpec(spec));
  for (auto& [id, expert] : experts) found.experts.push_back(std::move(expert));
  return found;
}

Result<uint64_t> FirstMoeLayer(const Checkpoint& checkpoint) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const StoredMatrices stored, FindStoredMatrices(checkpoint));
  std::optional<uint64_t> first;
  for (const StoredMatrix& matrix : stored.matrices)
    if (const auto place = PlaceOf(matrix.module))
      first = first ? std::min(*first, place->layer) : place->layer;
  if (!first) return InvalidInput("the checkpoint has no layer with experts");
  return *first;
}

std::unique_ptr<LayerWeights> MakeCheckpointWeights(const Checkpoint& checkpoint,
                                                    const CheckpointLayer& layer,
                                                    std::vector<uint32_t> ids) {
  return std::make_unique<CheckpointWeights>(checkpoint, layer, std::move(ids));
}

}  // namespace blockscale
