#include "convert/stacked_experts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

namespace blockscale {
namespace {

enum Part { kGate = 0, kUp = 1, kDown = 2 };

struct ExpertName {
  std::string parent;  // "model.layers.0.mlp.experts"
  uint64_t expert = 0;
  Part part = kGate;
};

std::optional<ExpertName> ParseExpertName(std::string_view module) {
  const size_t last = module.rfind('.');
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view projection = module.substr(last + 1), rest = module.substr(0, last);
  ExpertName name;
  if (projection == "gate_proj" || projection == "w1")
    name.part = kGate;
  else if (projection == "up_proj" || projection == "w3")
    name.part = kUp;
  else if (projection == "down_proj" || projection == "w2")
    name.part = kDown;
  else
    return std::nullopt;
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos || !rest.substr(0, dot).ends_with(".experts"))
    return std::nullopt;
  const std::string_view number = rest.substr(dot + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), name.expert);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  name.parent = rest.substr(0, dot);
  return name;
}

constexpr size_t kNone = static_cast<size_t>(-1);
using Layer = std::map<uint64_t, std::array<size_t, 3>>;  // expert -> index of gate, up, down

Status CheckLayer(const std::string& parent, const Layer& layer, const StoredMatrices& stored) {
  uint64_t expected = 0;
  for (const auto& [expert, parts] : layer) {
    if (expert != expected)
      return InvalidInput("{}: expert {} is missing; stacked experts are numbered without gaps",
                          parent, expected);
    ++expected;
    for (const size_t part : parts)
      if (part == kNone)
        return InvalidInput("{}.{}: gate, up or down projection is missing", parent, expert);
    for (size_t part = 0; part < parts.size(); ++part) {
      const StoredMatrix& matrix = stored.matrices[parts[part]];
      const StoredMatrix& like =
          stored.matrices[layer.begin()->second[part == kUp ? size_t{kGate} : part]];
      if (matrix.rows != like.rows || matrix.columns != like.columns || matrix.spec != like.spec)
        return InvalidInput(
            "{}: is [{}, {}] where '{}' is [{}, {}]; stacked experts have one "
            "shape and scheme",
            matrix.module, matrix.rows, matrix.columns, like.module, like.rows, like.columns);
    }
  }
  return OkStatus();
}

class Stacker {
 public:
  Stacker(const Checkpoint& checkpoint, const StoredMatrices& stored)
      : checkpoint_(checkpoint), stored_(stored) {}

  void Add(const std::string& parent, const Layer& layer) {
    ExpertStack fused{.stem = parent + ".gate_up_proj"}, down{.stem = parent + ".down_proj"};
    for (const auto& [expert, parts] : layer) {
      fused.experts.push_back({parts[kGate], parts[kUp]});
      down.experts.push_back({parts[kDown]});
    }
    for (ExpertStack* stack : {&fused, &down}) {
      AddBiases(*stack);
      Consume(*stack);
      out_.stacks.push_back(std::move(*stack));
    }
  }

  ExpertStacks Take() { return std::move(out_); }

 private:
  // All or none: a bias that only some experts have would be dropped.
  void AddBiases(ExpertStack& stack) {
    for (const std::vector<size_t>& parts : stack.experts)
      for (const size_t index : parts) {
        const StoredMatrix& matrix = stored_.matrices[index];
        const TensorRef bias = checkpoint_.Find(matrix.module + ".bias");
        if (!bias || bias.info->shape != std::vector<uint64_t>{matrix.rows}) continue;
        stack.biases.push_back({matrix.module, bias, matrix.rows});
      }
    const size_t parts = stack.experts.size() * stack.experts.front().size();
    if (stack.biases.size() != parts) stack.biases.clear();
    for (const StoredBias& bias : stack.biases) out_.consumed.insert(bias.values.info);
  }

  void Consume(ExpertStack& stack) {
    std::unordered_set<const TensorInfo*> codes;
    for (const std::vector<size_t>& parts : stack.experts)
      for (const size_t index : parts) {
        const StoredMatrix& matrix = stored_.matrices[index];
        codes.insert(matrix.codes.info);
        for (const TensorRef& part :
             {matrix.codes, matrix.scales, matrix.global, matrix.input_scale, matrix.shape})
          if (part) out_.consumed.insert(part.info);
      }
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      if (!codes.contains(tensor.info)) continue;
      stack.first = tensor.info;
      return;
    }
  }

  const Checkpoint& checkpoint_;
  const StoredMatrices& stored_;
  ExpertStacks out_;
};

}  // namespace

Result<ExpertStacks> FindExpertStacks(const Checkpoint& checkpoint, const StoredMatrices& stored,
                                      const std::vector<bool>& marked) {
  std::map<std::string, Layer> layers;
  for (size_t i = 0; i < stored.matrices.size(); ++i) {
    if (!marked[i]) continue;
    const StoredMatrix& matrix = stored.matrices[i];
    const std::optional<ExpertName> name = ParseExpertName(matrix.module);
    if (!name)
      return InvalidInput(
          "matrix '{}' is no expert's gate, up or down projection; the dialect "
          "gpt-oss quantises experts only: keep it, or choose another dialect",
          matrix.module);
    auto& parts = layers[name->parent]
                      .try_emplace(name->expert, std::array<size_t, 3>{kNone, kNone, kNone})
                      .first->second;
    parts[name->part] = i;
  }
  Stacker stacker(checkpoint, stored);
  for (const auto& [parent, layer] : layers) {
    BLOCKSCALE_RETURN_IF_ERROR(CheckLayer(parent, layer, stored));
    stacker.Add(parent, layer);
  }
  return stacker.Take();
}

}  // namespace blockscale
