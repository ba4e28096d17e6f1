#include "runtime/family_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/module_tree.h"

namespace blockscale {
namespace {

// A size of a tensor, by where it is in the config.
enum class Size { kNone, kHidden, kInner, kQuery, kKeyValue, kExperts, kVocab };

enum class Scope { kModel, kLayer };

struct ExpectedTensor {
  std::string_view model_type;
  Scope scope;
  std::string_view name;  // on disk; of a layer: behind "model.layers.N."
  Size rows, columns;     // columns kNone: a vector
};

constexpr ExpectedTensor kExpected[] = {
    {"minimax_m2", Scope::kModel, "model.embed_tokens.weight", Size::kVocab, Size::kHidden},
    {"minimax_m2", Scope::kModel, "model.norm.weight", Size::kHidden, Size::kNone},
    {"minimax_m2", Scope::kModel, "lm_head.weight", Size::kVocab, Size::kHidden},
    {"minimax_m2", Scope::kLayer, "input_layernorm.weight", Size::kHidden, Size::kNone},
    {"minimax_m2", Scope::kLayer, "post_attention_layernorm.weight", Size::kHidden, Size::kNone},
    {"minimax_m2", Scope::kLayer, "self_attn.q_proj.weight", Size::kQuery, Size::kHidden},
    {"minimax_m2", Scope::kLayer, "self_attn.k_proj.weight", Size::kKeyValue, Size::kHidden},
    {"minimax_m2", Scope::kLayer, "self_attn.v_proj.weight", Size::kKeyValue, Size::kHidden},
    {"minimax_m2", Scope::kLayer, "self_attn.o_proj.weight", Size::kHidden, Size::kQuery},
    {"minimax_m2", Scope::kLayer, "self_attn.q_norm.weight", Size::kQuery, Size::kNone},
    {"minimax_m2", Scope::kLayer, "self_attn.k_norm.weight", Size::kKeyValue, Size::kNone},
    {"minimax_m2", Scope::kLayer, "block_sparse_moe.gate.weight", Size::kExperts, Size::kHidden},
    {"minimax_m2", Scope::kLayer, "block_sparse_moe.e_score_correction_bias", Size::kExperts,
     Size::kNone},
    {"minimax_m2", Scope::kLayer, "block_sparse_moe.experts.0.w1.weight", Size::kInner,
     Size::kHidden},
    {"minimax_m2", Scope::kLayer, "block_sparse_moe.experts.0.w2.weight", Size::kHidden,
     Size::kInner},
    {"minimax_m2", Scope::kLayer, "block_sparse_moe.experts.0.w3.weight", Size::kInner,
     Size::kHidden}};

// Endings that the loader passes over or renames, whatever the module.
constexpr std::string_view kPassedOver[] = {".bias",    "rotary_emb.inv_freq", ".k_scale",
                                            ".v_scale", ".output_scale",       ".kv_scale"};

// What a quantised matrix has beside its weight; CheckOnDisk says whether its method wants it.
constexpr std::string_view kBesideWeight[] = {
    ".weight",       ".weight_scale",        ".weight_scale_inv", ".weight_zero_point",
    ".weight_g_idx", ".weight_global_scale", ".weight_shape",     ".input_scale"};

class FamilyCheck {
 public:
  FamilyCheck(const Checkpoint& checkpoint, uint64_t layers, GroupedFindings& findings)
      : checkpoint_(checkpoint), layers_(layers), findings_(findings) {}

  void Run() {
    for (const ExpectedTensor& expected : kExpected) {
      if (expected.model_type != checkpoint_.config().model_type || !IsWanted(expected)) continue;
      if (expected.scope == Scope::kModel) {
        CheckOne(expected, std::string(expected.name));
        continue;
      }
      // A config that lies about its layers must not make us count to 2^64.
      for (uint64_t layer = 0; layer < std::min<uint64_t>(layers_, 100'000); ++layer)
        CheckOne(expected, fmt::format("model.layers.{}.{}", layer, expected.name));
    }
    for (const TensorRef& tensor : checkpoint_.tensors()) CheckKnown(tensor.info->name);
  }

 private:
  bool Says(const char* key) const {
    const auto found = checkpoint_.config().json.find(key);
    return found != checkpoint_.config().json.end() && *found == true;
  }

  bool IsWanted(const ExpectedTensor& expected) const {
    if (expected.name == "lm_head.weight") return !Says("tie_word_embeddings");
    if (expected.name.ends_with("e_score_correction_bias")) return Says("use_routing_bias");
    return true;
  }

  std::optional<uint64_t> Value(Size size) const {
    const HfConfig& config = checkpoint_.config();
    const auto heads = [&](const char* key) -> std::optional<uint64_t> {
      const auto count = config.Number(key), width = config.Number("head_dim");
      if (!count || !width || *count > (1 << 20) || *width > (1 << 20)) return std::nullopt;
      return *count * *width;
    };
    switch (size) {
      case Size::kNone:
        return std::nullopt;
      case Size::kHidden:
        return config.Number("hidden_size");
      case Size::kInner:
        return config.Number("intermediate_size");
      case Size::kQuery:
        return heads("num_attention_heads");
      case Size::kKeyValue:
        return heads("num_key_value_heads");
      case Size::kExperts:
        return config.Number("num_local_experts");
      case Size::kVocab:
        return config.Number("vocab_size");
    }
    return std::nullopt;
  }

  void CheckOne(const ExpectedTensor& expected, const std::string& name) {
    const std::string kind(expected.name);
    const TensorRef tensor = checkpoint_.Find(name);
    if (!tensor) {
      findings_.Add(true, name, "missing/" + kind,
                    "is missing; the loader does not look for missing tensors of a quantised "
                    "model, and the parameter keeps what its memory held: silently wrong");
      return;
    }
    // Experts are held against their sizes one by one, elsewhere.
    if (expected.name.find(".experts.") != std::string_view::npos) return;
    std::vector<uint64_t> shape;
    for (const Size size : {expected.rows, expected.columns}) {
      if (size == Size::kNone) continue;
      const auto value = Value(size);
      if (!value) return;
      shape.push_back(*value);
    }
    if (tensor.info->shape != shape)
      findings_.Add(true, name, "shape/" + kind,
                    fmt::format("is {}, the config's sizes give {}; it is refused at load",
                                ShapeText(tensor.info->shape), ShapeText(shape)));
  }

  // Whether some parameter waits for a tensor of this name.
  void CheckKnown(const std::string& name) {
    if (IsPassedOver(checkpoint_.config(), name)) return;
    for (const std::string_view ending : kPassedOver)
      if (name.ends_with(ending)) return;
    const auto layer = LayerOf(name);
    if (layer && *layer >= layers_) {
      findings_.Add(true, name, "unknown-layer",
                    fmt::format("is of layer {}, num_hidden_layers is {}: KeyError at load", *layer,
                                layers_));
      return;
    }
    const std::string prefix = layer ? fmt::format("model.layers.{}.", *layer) : "";
    if (!name.starts_with(prefix) || !IsKnown(name.substr(prefix.size()), layer.has_value()))
      findings_.Add(true, name, "unknown-tensor",
                    "belongs to no parameter of the runtime's class: KeyError at load");
  }

  // `name` behind the layer's prefix, when there is one.
  bool IsKnown(const std::string& name, bool in_layer) const {
    for (const ExpectedTensor& expected : kExpected)
      if (expected.name == name && (expected.scope == Scope::kLayer) == in_layer)
        return IsWanted(expected);
    for (const std::string_view ending : kBesideWeight) {
      if (!name.ends_with(ending)) continue;
      const std::string module = name.substr(0, name.size() - ending.size());
      if (const auto place = PlaceOfExpert(module))  // its expert is judged elsewhere
        return place->part != ExpertPlace::Part::kOther;
      const std::string weight = module + ".weight";
      if (weight != name) return IsKnown(weight, in_layer);
    }
    return false;
  }

  const Checkpoint& checkpoint_;
  const uint64_t layers_;
  GroupedFindings& findings_;
};

// A size that is no size would leave a check out without a word.
void CheckSizes(const HfConfig& config, GroupedFindings& findings) {
  constexpr uint64_t kLargest = 1 << 24;
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "num_local_experts", "vocab_size", "num_hidden_layers"}) {
    const auto found = config.json.find(key);
    if (found == config.json.end()) continue;
    const auto number = config.Number(key);
    if (number && *number > 0 && *number <= kLargest) continue;
    findings.Add(true, "config.json", std::string("size/") + key,
                 fmt::format("'{}' is {}, not a whole number from 1 to {}", key,
                             found->dump().substr(0, 40), kLargest));
  }
}

}  // namespace

void CheckFamilyTensors(const Checkpoint& checkpoint, GroupedFindings& findings) {
  const HfConfig& config = checkpoint.config();
  CheckSizes(config, findings);
  const auto layers = config.Number("num_hidden_layers");
  const bool known = std::any_of(
      std::begin(kExpected), std::end(kExpected),
      [&](const ExpectedTensor& expected) { return expected.model_type == config.model_type; });
  if (known && layers) FamilyCheck(checkpoint, *layers, findings).Run();
}

}  // namespace blockscale
