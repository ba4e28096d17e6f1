#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "checkpoint/json_reader.h"

namespace blockscale {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

// Builds the tensor list from JSON events, so that a header of 100 MB needs no tree.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const std::string& file, SafetensorsHeader* header) : file_(file), header_(header) {}
  const Status& failure() const { return failure_; }

  bool null() override {
    if (state_ == State::kMetadataValue) return Fail("__metadata__ '{}' is not a string", key_);
    if (state_ == State::kEntry && in_metadata_) return Leave(State::kTop);  // "__metadata__": null
    return Scalar("null");
  }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return Number(std::nullopt, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(value, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Number(std::nullopt, text);
  }
  bool binary(binary_t&) override { return Scalar("binary"); }

  bool string(string_t& value) override {
    switch (state_) {
      case State::kMetadataValue:
        header_->metadata.emplace_back(key_, value);
        return Leave(State::kMetadata);
      case State::kDtype: {
        const std::optional<DType> dtype = ParseDType(value);
        if (!dtype)
          return Fail("tensor '{}' has the unknown dtype '{}'", tensor_.name, Shortened(value));
        tensor_.dtype = *dtype;
        has_dtype_ = true;
        return Leave(State::kTensor);
      }
      default:
        return Scalar("a string");
    }
  }

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        return Leave(State::kTop);
      case State::kEntry:
        if (in_metadata_) return Leave(State::kMetadata);
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return Leave(State::kTensor);
      case State::kSkip:
        return Skip(+1);
      default:
        return Scalar("an object");
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::kMetadata:
        return Leave(State::kTop);
      case State::kTensor:
        return FinishTensor();
      case State::kSkip:
        return Skip(-1);
      default:
        return Leave(State::kEnd);
    }
  }

  bool start_array(size_t) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      if (in_array_) return Fail("tensor '{}': nested array", tensor_.name);
      in_array_ = true;
      return true;
    }
    if (state_ == State::kSkip) return Skip(+1);
    return Scalar("an array");
  }

  bool end_array() override {
    if (state_ == State::kSkip) return Skip(-1);
    in_array_ = false;
    if (state_ == State::kOffsets) {
      if (offsets_.size() != 2)
        return Fail("tensor '{}': data_offsets has {} numbers, not 2", tensor_.name,
                    offsets_.size());
      has_offsets_ = true;
    } else {
      has_shape_ = true;
    }
    return Leave(State::kTensor);
  }

  bool key(string_t& name) override {
    switch (state_) {
      case State::kTop:
        return TopKey(name);
      case State::kMetadata:
        key_ = name;
        return Leave(State::kMetadataValue);
      case State::kTensor:
        return TensorKey(name);
      default:  // inside a value that is skipped
        return true;
    }
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    failure_ = InvalidInput("{}: the header is not JSON: {}", file_, e.what());
    return false;
  }

 private:
  enum class State {
    kStart,
    kTop,
    kEntry,
    kMetadata,
    kMetadataValue,
    kTensor,
    kDtype,
    kShape,
    kOffsets,
    kSkip,
    kEnd
  };

  template <typename... Args>
  bool Fail(fmt::format_string<Args...> text, Args&&... args) {
    failure_ =
        InvalidInput("{}: header: {}", file_, fmt::format(text, std::forward<Args>(args)...));
    return false;
  }

  static std::string Shortened(const std::string& text) {
    return text.size() <= 64 ? text : text.substr(0, 64) + "...";
  }

  bool Leave(State next) {
    state_ = next;
    return true;
  }

  // A value where none of its kind may stand.
  bool Scalar(const char* what) {
    switch (state_) {
      case State::kSkip:
        if (skip_depth_ == 0) state_ = State::kTensor;
        return true;
      case State::kStart:
        return Fail("is {}, not an object", what);
      case State::kEntry:
        if (in_metadata_) return Fail("__metadata__ is {}, not an object of strings", what);
        return Fail("tensor '{}' is {}, not an object", tensor_.name, what);
      case State::kMetadataValue:
        return Fail("__metadata__ '{}' is {}, not a string", Shortened(key_), what);
      case State::kDtype:
        return Fail("tensor '{}': dtype is {}, not a string", tensor_.name, what);
      default:
        return Fail("tensor '{}': {} is {}, not an array of whole numbers", tensor_.name,
                    state_ == State::kShape ? "shape" : "data_offsets", what);
    }
  }

  bool Skip(int step) {
    skip_depth_ += step;
    if (skip_depth_ > kMaxJsonDepth) return Fail("is nested deeper than {} levels", kMaxJsonDepth);
    if (skip_depth_ == 0) state_ = State::kTensor;
    return true;
  }

  bool Number(std::optional<uint64_t> value, const std::string& text) {
    if (!in_array_ || (state_ != State::kShape && state_ != State::kOffsets))
      return Scalar("a number");
    if (!value)
      return Fail("tensor '{}': {} holds {}, not a whole number from 0 to 2^64-1", tensor_.name,
                  state_ == State::kShape ? "shape" : "data_offsets", Shortened(text));
    (state_ == State::kShape ? tensor_.shape : offsets_).push_back(*value);
    return true;
  }

  bool TopKey(const std::string& name) {
    if (!names_.insert(name).second) return Fail("tensor '{}' stands twice", Shortened(name));
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) header_->has_metadata = true;
    tensor_ = TensorInfo{.name = name};
    offsets_.clear();
    return Leave(State::kEntry);
  }

  bool TensorKey(const std::string& name) {
    const bool twice = (name == "dtype" && has_dtype_) || (name == "shape" && has_shape_) ||
                       (name == "data_offsets" && has_offsets_);
    if (twice) return Fail("tensor '{}': {} stands twice", tensor_.name, name);
    if (name == "dtype") return Leave(State::kDtype);
    if (name == "shape") return Leave(State::kShape);
    if (name == "data_offsets") return Leave(State::kOffsets);
    skip_depth_ = 0;
    return Leave(State::kSkip);  // the reference reader ignores other fields too
  }

  bool FinishTensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_)
      return Fail("tensor '{}' has no {}", tensor_.name,
                  !has_dtype_   ? "dtype"
                  : !has_shape_ ? "shape"
                                : "data_offsets");
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_->tensors.push_back(std::move(tensor_));
    return Leave(State::kTop);
  }

  const std::string& file_;
  SafetensorsHeader* header_;
  Status failure_;
  State state_ = State::kStart;
  bool in_metadata_ = false;
  bool in_array_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int skip_depth_ = 0;
  std::string key_;
  TensorInfo tensor_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> names_;
};

// Sorted by offsets, tensors must fill the buffer from 0 without holes or overlaps, and each must
// have the size that its type and shape say.
Status CheckLayout(SafetensorsHeader& header, const std::string& file) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  uint64_t expected = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.end < tensor.begin)
      return InvalidInput("{}: tensor '{}' ends at {} before it begins at {}", file, tensor.name,
                          tensor.end, tensor.begin);
    if (tensor.begin != expected)
      return InvalidInput("{}: tensor '{}' begins at {} where {} was expected: the data has {}",
                          file, tensor.name, tensor.begin, expected,
                          tensor.begin > expected ? "a hole" : "an overlap");
    const Result<uint64_t> bytes = TensorBytes(tensor.name, tensor.dtype, tensor.shape);
    if (!bytes.ok()) return InvalidInput("{}: {}", file, bytes.status().message());
    if (*bytes != tensor.bytes())
      return InvalidInput(
          "{}: tensor '{}' is {} {} and needs {} bytes, but its data_offsets hold {}", file,
          tensor.name, NameOf(tensor.dtype), ShapeText(tensor.shape), *bytes, tensor.bytes());
    expected = tensor.end;
  }
  return OkStatus();
}

}  // namespace

uint64_t TensorInfo::elements() const {
  uint64_t product = 1;
  for (const uint64_t side : shape) product *= side;
  return product;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<uint64_t> TensorBytes(const std::string& name, DType dtype,
                             const std::vector<uint64_t>& shape) {
  uint64_t bits = static_cast<uint64_t>(BitsOf(dtype));
  bool overflow = false;
  for (const uint64_t side : shape) overflow |= __builtin_mul_overflow(bits, side, &bits);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return uint64_t{0};
  if (overflow)
    return InvalidInput("tensor '{}': {} {} has more bits than 2^64", name, NameOf(dtype),
                        ShapeText(shape));
  if (bits % 8 != 0)
    return InvalidInput("tensor '{}': {} {} does not fill whole bytes", name, NameOf(dtype),
                        ShapeText(shape));
  return bits / 8;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& file) {
  SafetensorsHeader header;
  HeaderEvents events(file, &header);
  BLOCKSCALE_RETURN_IF_ERROR(ParseJsonEvents(json, file, events, events.failure()));
  header.data_start = 8 + json.size();
  BLOCKSCALE_RETURN_IF_ERROR(CheckLayout(header, file));
  return header;
}

Result<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file) {
  const std::string& path = file.path();
  const uint64_t size = file.facts().size;
  if (size < 8)
    return InvalidInput(
        "{}: has {} bytes, too few for a safetensors header; it was cut off: get it again", path,
        size);
  uint64_t length = 0;
  BLOCKSCALE_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxHeaderBytes)
    return InvalidInput(
        "{}: the header claims {} bytes, more than the limit of {}; this is no "
        "safetensors file",
        path, length, kMaxHeaderBytes);
  if (length > size - 8)
    return InvalidInput(
        "{}: the header claims {} bytes, but the file has only {} in all; it was "
        "truncated, copy it again",
        path, length, size);
  std::string json(length, '\0');
  BLOCKSCALE_RETURN_IF_ERROR(file.ReadAt(8, std::as_writable_bytes(std::span(json))));
  BLOCKSCALE_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(json, path));
  const uint64_t data_in_file = size - header.data_start;
  if (data_in_file < header.data_bytes())
    return InvalidInput(
        "{}: holds {} bytes of data where its header describes {}; it was "
        "truncated, copy it again",
        path, data_in_file, header.data_bytes());
  if (data_in_file > header.data_bytes())
    return InvalidInput("{}: has {} bytes after the last tensor that no tensor owns", path,
                        data_in_file - header.data_bytes());
  return header;
}

Result<std::string> LayOutSafetensors(std::vector<TensorInfo> tensors, SafetensorsHeader* header) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  // Written by hand only in its frame: names go through the library's own escaping.
  std::string json = R"({"__metadata__":{"format":"pt"})";
  uint64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t bytes,
                                TensorBytes(tensor.name, tensor.dtype, tensor.shape));
    tensor.begin = offset;
    if (__builtin_add_overflow(offset, bytes, &offset))
      return InvalidInput("tensor '{}': the file would be larger than 2^64 bytes", tensor.name);
    tensor.end = offset;
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(tensor.name).dump(), NameOf(tensor.dtype),
                        fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeaderBytes)
    return InvalidInput("a header of {} bytes for {} tensors is larger than the limit of {}",
                        json.size(), tensors.size(), kMaxHeaderBytes);
  const uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  *header = SafetensorsHeader{.data_start = 8 + length,
                              .tensors = std::move(tensors),
                              .metadata = {{"format", "pt"}},
                              .has_metadata = true};
  return bytes + json;
}

}  // namespace blockscale
