// A safetensors file on its own, no checkpoint around it: tensors by name, in and out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/safetensors.h"

namespace blockscale {

class TensorFile {
 public:
  static Result<TensorFile> Open(FileSystem& files, const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return file_->path(); }
  // Null: no such tensor.
  const TensorInfo* Find(const std::string& name) const;
  // A value of "__metadata__", or "".
  std::string Metadata(const std::string& key) const;

  template <typename Value>
  Result<std::vector<Value>> Read(const TensorInfo& tensor) const {
    std::vector<Value> values(tensor.bytes() / sizeof(Value));
    BLOCKSCALE_RETURN_IF_ERROR(ReadBytes(tensor, std::as_writable_bytes(std::span(values))));
    return values;
  }

 private:
  Status ReadBytes(const TensorInfo& tensor, std::span<std::byte> out) const;

  std::unique_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
};

// A tensor to be written; the data is not owned.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;
};

// Writes `path` whole or not at all. The data's sizes must be those of the shapes.
Status WriteTensorFile(FileSystem& files, const std::string& path,
                       const std::vector<NamedTensor>& tensors);

}  // namespace blockscale
