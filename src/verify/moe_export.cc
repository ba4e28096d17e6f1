#include "verify/moe_export.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "checkpoint/output_file.h"
#include "checkpoint/tensor_file.h"

namespace blockscale {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCasesName[] = "cases.json";

// JSON has no infinity.
Json NumberOrText(float x) { return std::isfinite(x) ? Json(x) : Json("inf"); }

Json ActivationJson(const Activation& activation) {
  Json json = {{"name", NameOf(activation.kind)}, {"gated", activation.gated()}};
  size_t at = 0;
  for (const ActivationParameter& parameter : ParametersOf(activation.kind)) {
    Json values = Json::array();
    for (const float x : activation.parameters[at].values()) values.push_back(NumberOrText(x));
    json[std::string(parameter.name)] = std::move(values);  // one, or one a local expert
    ++at;
  }
  return json;
}

Json SpecJson(const MoeSpec& spec) {
  const QuantSpec quant = spec.weight_spec();
  return {{"experts", spec.experts},
          {"local_experts", spec.local_experts()},
          {"first_expert", spec.first_expert()},
          {"top_k", spec.top_k},
          {"hidden", spec.hidden},
          {"intermediate", spec.local_intermediate()},
          {"fc1_rows", spec.fc1_rows()},
          {"weights", NameOf(spec.weights)},
          {"weight_block", {quant.block_rows, quant.block_columns}},  // 0: all
          {"inputs", NameOf(spec.inputs)},
          {"activation", ActivationJson(spec.activation)},
          {"recipe", NameOf(spec.recipe)},
          {"order", NameOf(spec.order)},
          {"output", NameOf(spec.output)},
          {"biases", spec.biases},  // FC2's is added by the first tensor-parallel rank alone
          {"tp_rank", spec.tp_rank}};
}

// Tensors that are not there are not written.
void Add(std::vector<NamedTensor>* tensors, std::string name, DType dtype,
         std::vector<uint64_t> shape, std::span<const std::byte> data) {
  if (!data.empty()) tensors->push_back({std::move(name), dtype, std::move(shape), data});
}

std::vector<NamedTensor> CallTensors(const MoeCase& c, const CaseData& data,
                                     const std::vector<float>& states) {
  const uint64_t tokens = c.tokens;
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::vector<NamedTensor> tensors;
  Add(&tensors, "input_codes", DType::kU8, {tokens, data.inputs.code_bytes()}, data.inputs.codes);
  Add(&tensors, "input_scales", DType::kU8, {tokens, data.inputs.scale_bytes()},
      data.inputs.scales);
  Add(&tensors, "hidden_states", DType::kF32, {tokens, c.spec.hidden}, bytes(states));
  Add(&tensors, "topk_ids", DType::kI32, {tokens, c.spec.top_k}, bytes(data.ids));
  Add(&tensors, "topk_weights", DType::kF32, {tokens, c.spec.top_k}, bytes(data.weights));
  return tensors;
}

Status WriteCall(FileSystem& files, const std::string& path, const MoeCase& c) {
  const CaseData data = MakeCaseData(c);
  std::vector<float> states(c.tokens * c.spec.hidden);
  for (size_t t = 0; t < c.tokens; ++t)
    DecodeRow(data.inputs, t, states.data() + t * c.spec.hidden);
  std::vector<NamedTensor> tensors = CallTensors(c, data, states);
  const float global[1] = {data.intermediate_global.Apply(1)};
  if (c.spec.inputs == RowScheme::kNvfp4)
    Add(&tensors, "input_global", DType::kF32, {1}, std::as_bytes(std::span(global)));
  return WriteTensorFile(files, path, tensors);
}

struct Matrix {
  std::string name;
  uint64_t rows, columns;
  const std::vector<std::byte>&codes, &scales;
  const std::vector<GlobalScale>& globals;
  const std::vector<float>& bias;
};

void AddMatrix(const MoeSpec& spec, const Matrix& matrix, std::vector<float>* globals,
               std::vector<NamedTensor>* tensors) {
  const QuantSpec quant = spec.weight_spec();
  const uint64_t experts = spec.local_experts();
  Add(tensors, matrix.name + "_codes", DType::kU8,
      {experts, matrix.rows, quant.row_bytes(matrix.columns)}, matrix.codes);
  Add(tensors, matrix.name + "_scales", DType::kU8,
      {experts, quant.grid_rows(matrix.rows),
       quant.grid_columns(matrix.columns) * quant.scale_bytes()},
      matrix.scales);
  for (const GlobalScale& global : matrix.globals) globals->push_back(global.Apply(1));
  Add(tensors, matrix.name + "_global", DType::kF32, {experts}, std::as_bytes(std::span(*globals)));
  Add(tensors, matrix.name + "_bias", DType::kF32, {experts, matrix.rows},
      std::as_bytes(std::span(matrix.bias)));
}

Status WriteWeights(FileSystem& files, const std::string& path, const MoeCase& c) {
  const StackedWeights stack = MakeCaseStack(c.spec, c.seed);
  std::vector<NamedTensor> tensors;
  std::vector<float> w13_globals, w2_globals;
  AddMatrix(c.spec,
            {"w13", c.spec.fc1_rows(), c.spec.hidden, stack.w13_codes, stack.w13_scales,
             stack.w13_global, stack.b13},
            &w13_globals, &tensors);
  AddMatrix(c.spec,
            {"w2", c.spec.hidden, c.spec.local_intermediate(), stack.w2_codes, stack.w2_scales,
             stack.w2_global, stack.b2},
            &w2_globals, &tensors);
  return WriteTensorFile(files, path, tensors);
}

// What MakeCaseStack looks at.
std::string StackName(const MoeCase& c) {
  const MoeSpec& s = c.spec;
  return fmt::format("{} {} {} {} {} {} {} {}", s.local_experts(), s.fc1_rows(), s.hidden,
                     s.local_intermediate(), NameOf(s.weights), s.weight_group, s.biases, c.seed);
}

}  // namespace

Status ExportCases(FileSystem& files, const std::string& output, const std::vector<MoeCase>& cases,
                   const std::function<void(size_t done)>& progress) {
  if (files.Exists(output)) return Refused("{} is there; choose another name or remove it", output);
  BLOCKSCALE_RETURN_IF_ERROR(files.CreateDirectories(output));
  std::map<std::string, std::string> written;  // stack -> file
  Json list = Json::array();
  for (const MoeCase& c : cases) {
    const std::string call = fmt::format("call-{}.safetensors", list.size());
    std::string& weights = written[StackName(c)];
    if (weights.empty()) {
      weights = fmt::format("weights-{}.safetensors", written.size() - 1);
      BLOCKSCALE_RETURN_IF_ERROR(WriteWeights(files, JoinPath(output, weights), c));
    }
    BLOCKSCALE_RETURN_IF_ERROR(WriteCall(files, JoinPath(output, call), c));
    list.push_back(
        {{"case", ToString(c)}, {"call", call}, {"weights", weights}, {"spec", SpecJson(c.spec)}});
    if (progress) progress(list.size());
  }
  const Json json = {{"cases", std::move(list)}};
  return WriteFileAtomically(files, output, kCasesName, json.dump(1) + "\n");
}

}  // namespace blockscale
