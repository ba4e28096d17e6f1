#include "moe/spec.h"

#include <functional>
#include <vector>

#include "base/status.h"
#include "moe/text_fields.h"

namespace blockscale {
namespace {

struct KnownLayer {
  std::string_view name;
  std::string_view fields;
};

// Published sizes: moonshotai/Kimi-K3 (latent width), MiniMaxAI/MiniMax-M2, openai/gpt-oss-*.
constexpr KnownLayer kKnownLayers[] = {
    {"kimi-k3",
     "experts=896,top-k=16,hidden=3584,intermediate=3072,weights=mxfp4,inputs=mxfp8,activation="
     "situ"},
    {"minimax-m2",
     "experts=256,top-k=8,hidden=3072,intermediate=1536,weights=fp8-block,inputs=fp8-token-128"},
    {"gpt-oss-20b",
     "experts=32,top-k=4,hidden=2880,intermediate=2880,weights=mxfp4,inputs=mxfp8,"
     "activation=swiglu-oai,order=interleaved,biases=yes"},
    {"gpt-oss-120b",
     "experts=128,top-k=4,hidden=2880,intermediate=2880,weights=mxfp4,inputs=mxfp8,"
     "activation=swiglu-oai,order=interleaved,biases=yes"},
};

constexpr uint64_t kMostCount = 1u << 24;

template <typename Enum, typename Parse, typename All>
Status SetEnum(const TextField& field, Parse parse, const All& all, Enum* value) {
  const auto parsed = parse(field.value);
  if (!parsed)
    return InvalidInput("{}={} is not known; there are {}", field.name, field.value,
                        NamesOfAll(all));
  *value = *parsed;
  return OkStatus();
}

Status SetCount(const TextField& field, uint32_t* value, uint64_t least = 1) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t count, ParseCount(field, least, kMostCount));
  *value = static_cast<uint32_t>(count);
  return OkStatus();
}

// "SIZE:RANK", or SIZE for rank 0.
Status SetSlice(const TextField& field, uint32_t* size, uint32_t* rank) {
  const size_t colon = field.value.find(':');
  *rank = 0;
  BLOCKSCALE_RETURN_IF_ERROR(SetCount({field.name, field.value.substr(0, colon)}, size));
  if (colon == field.value.npos) return OkStatus();
  return SetCount({field.name, field.value.substr(colon + 1)}, rank, 0);
}

Status SetField(const TextField& field, MoeSpec* spec);

Status SetFields(std::string_view text, MoeSpec* spec) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto fields, SplitFields(text));
  for (const TextField& field : fields) BLOCKSCALE_RETURN_IF_ERROR(SetField(field, spec));
  return OkStatus();
}

Status SetNamed(const TextField& field, MoeSpec* spec) {
  std::string names;
  for (const KnownLayer& layer : kKnownLayers) {
    if (layer.name == field.name) return SetFields(layer.fields, spec);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", layer.name);
  }
  return InvalidInput("'{}' is no known layer and no NAME=VALUE; known layers are {}", field.name,
                      names);
}

Status SetField(const TextField& field, MoeSpec* spec) {
  const std::string_view name = field.name;
  if (field.value.empty()) return SetNamed(field, spec);
  if (name == "experts") return SetCount(field, &spec->experts);
  if (name == "top-k") return SetCount(field, &spec->top_k);
  if (name == "hidden") return SetCount(field, &spec->hidden);
  if (name == "intermediate") return SetCount(field, &spec->intermediate);
  if (name == "weight-group") return SetCount(field, &spec->weight_group);
  if (name == "ep") return SetSlice(field, &spec->ep_size, &spec->ep_rank);
  if (name == "tp") return SetSlice(field, &spec->tp_size, &spec->tp_rank);
  if (name == "weights") return SetEnum(field, ParseScheme, AllScheme(), &spec->weights);
  if (name == "inputs") return SetEnum(field, ParseRowScheme, AllRowScheme(), &spec->inputs);
  if (name == "recipe")
    return SetEnum(field, ParseIntermediateRecipe, AllIntermediateRecipe(), &spec->recipe);
  if (name == "order") return SetEnum(field, ParseGateUpOrder, AllGateUpOrder(), &spec->order);
  if (name == "finalize") return SetEnum(field, ParseFinalize, AllFinalize(), &spec->finalize);
  if (name == "output") return SetEnum(field, ParseOutputType, AllOutputType(), &spec->output);
  if (name == "biases") {
    if (field.value != "yes" && field.value != "no")
      return InvalidInput("biases={}: it is yes or no", field.value);
    spec->biases = field.value == "yes";
    return OkStatus();
  }
  if (name == "activation") {
    BLOCKSCALE_ASSIGN_OR_RETURN(spec->activation, ParseActivation(field.value));
    return OkStatus();
  }
  return InvalidInput(
      "a layer has no field '{}'; it has experts, top-k, hidden, intermediate, "
      "weights, weight-group, inputs, activation, recipe, order, finalize, output, "
      "biases, ep, tp",
      name);
}

Status Divides(std::string_view what, uint64_t size, std::string_view by, uint64_t divisor) {
  if (divisor == 0 || size % divisor == 0) return OkStatus();
  return InvalidInput("{} is {}, which {} of {} does not divide; pad it or choose another", what,
                      size, by, divisor);
}

}  // namespace

uint64_t GroupOf(RowScheme scheme, uint64_t columns) {
#define BLOCKSCALE_ROW_GROUP(enumerator, id, name, group) \
  case RowScheme::enumerator:                             \
    return group == 0 ? columns : group;
  switch (scheme) { BLOCKSCALE_ROW_SCHEMES(BLOCKSCALE_ROW_GROUP) }
#undef BLOCKSCALE_ROW_GROUP
  return columns;
}

QuantSpec MoeSpec::weight_spec() const {
  QuantSpec spec = SpecOf(weights);
  if (weight_group != 0) spec.block_columns = weight_group;
  return spec;
}

uint32_t GateRow(const MoeSpec& spec, uint32_t n) {
  if (!spec.activation.gated()) return n;
  switch (spec.order) {
    case GateUpOrder::kUpGate:
      return spec.local_intermediate() + n;
    case GateUpOrder::kGateUp:
      return n;
    case GateUpOrder::kInterleaved:
      return 2 * n;
  }
  return n;
}

uint32_t UpRow(const MoeSpec& spec, uint32_t n) {
  switch (spec.order) {
    case GateUpOrder::kUpGate:
      return n;
    case GateUpOrder::kGateUp:
      return spec.local_intermediate() + n;
    case GateUpOrder::kInterleaved:
      return 2 * n + 1;
  }
  return n;
}

Status ValidateMoeSpec(const MoeSpec& spec) {
  if (spec.experts == 0 || spec.top_k == 0 || spec.hidden == 0 || spec.intermediate == 0 ||
      spec.ep_size == 0 || spec.tp_size == 0)
    return InvalidInput("experts, top-k, hidden, intermediate, ep and tp must be 1 or more");
  if (spec.top_k > spec.experts || spec.top_k > kMostSlots)
    return InvalidInput("top-k is {}; it must be no more than the {} experts and {}", spec.top_k,
                        spec.experts, kMostSlots);
  if (spec.ep_rank >= spec.ep_size || spec.tp_rank >= spec.tp_size)
    return InvalidInput("rank {} of ep={} and rank {} of tp={}: ranks count from 0", spec.ep_rank,
                        spec.ep_size, spec.tp_rank, spec.tp_size);
  BLOCKSCALE_RETURN_IF_ERROR(Divides("experts", spec.experts, "ep", spec.ep_size));
  BLOCKSCALE_RETURN_IF_ERROR(Divides("intermediate", spec.intermediate, "tp", spec.tp_size));
  if (spec.weight_group != 0 && spec.weights != Scheme::kInt4Group)
    return InvalidInput("weight-group={} is for int4-group; {} has its own", spec.weight_group,
                        NameOf(spec.weights));
  const uint32_t inner = spec.local_intermediate();
  for (const auto& [what, size] :
       {std::pair{"hidden", spec.hidden}, {"intermediate a rank", inner}}) {
    BLOCKSCALE_RETURN_IF_ERROR(
        Divides(what, size, "a group of inputs", GroupOf(spec.inputs, size)));
    const QuantSpec weights = spec.weight_spec();
    if (weights.block_rows == 1)
      BLOCKSCALE_RETURN_IF_ERROR(Divides(what, size, "a group of weights", weights.block_columns));
  }
  return ValidateActivation(spec.activation, spec.local_experts());
}

std::string ToString(const MoeSpec& spec) {
  const MoeSpec usual;
  std::string text =
      fmt::format("experts={},top-k={},hidden={},intermediate={},weights={}", spec.experts,
                  spec.top_k, spec.hidden, spec.intermediate, NameOf(spec.weights));
  if (spec.weight_group != 0) text += fmt::format(",weight-group={}", spec.weight_group);
  text += fmt::format(",inputs={},activation={}", NameOf(spec.inputs), ToString(spec.activation));
  if (spec.recipe != usual.recipe) text += fmt::format(",recipe={}", NameOf(spec.recipe));
  if (spec.order != usual.order) text += fmt::format(",order={}", NameOf(spec.order));
  if (spec.finalize != usual.finalize) text += fmt::format(",finalize={}", NameOf(spec.finalize));
  if (spec.output != usual.output) text += fmt::format(",output={}", NameOf(spec.output));
  if (spec.biases) text += ",biases=yes";
  if (spec.ep_size != 1) text += fmt::format(",ep={}:{}", spec.ep_size, spec.ep_rank);
  if (spec.tp_size != 1) text += fmt::format(",tp={}:{}", spec.tp_size, spec.tp_rank);
  return text;
}

Result<MoeSpec> ParseMoeSpec(std::string_view text) {
  MoeSpec spec;
  BLOCKSCALE_RETURN_IF_ERROR(SetFields(text, &spec));
  BLOCKSCALE_RETURN_IF_ERROR(ValidateMoeSpec(spec));
  return spec;
}

}  // namespace blockscale
