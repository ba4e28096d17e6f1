#include "checkpoint/tensor_file.h"

#include <algorithm>
#include <map>

#include "checkpoint/output_file.h"

namespace blockscale {

Result<TensorFile> TensorFile::Open(FileSystem& files, const std::string& path) {
  TensorFile file;
  BLOCKSCALE_ASSIGN_OR_RETURN(file.file_, files.OpenForRead(path));
  BLOCKSCALE_ASSIGN_OR_RETURN(file.header_, ReadSafetensorsHeader(*file.file_));
  return file;
}

const TensorInfo* TensorFile::Find(const std::string& name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

std::string TensorFile::Metadata(const std::string& key) const {
  for (const auto& [name, value] : header_.metadata)
    if (name == key) return value;
  return "";
}

Status TensorFile::ReadBytes(const TensorInfo& tensor, std::span<std::byte> out) const {
  return file_->ReadAt(header_.data_start + tensor.begin, out);
}

Status WriteTensorFile(FileSystem& files, const std::string& path,
                       const std::vector<NamedTensor>& tensors) {
  std::vector<TensorInfo> infos;
  std::map<std::string, std::span<const std::byte>> data;
  for (const NamedTensor& tensor : tensors) {
    infos.push_back({tensor.name, tensor.dtype, tensor.shape});
    data[tensor.name] = tensor.data;
  }
  SafetensorsHeader header;
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::string start,
                              LayOutSafetensors(std::move(infos), &header));
  for (const TensorInfo& tensor : header.tensors)
    BLOCKSCALE_CHECK(tensor.bytes() == data[tensor.name].size(), "{}: {} is {} bytes, not {}",
                     tensor.name, ShapeText(tensor.shape), tensor.bytes(),
                     data[tensor.name].size());
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  BLOCKSCALE_ASSIGN_OR_RETURN(
      const auto file,
      OutputFile::Create(files, folder, slash == path.npos ? path : path.substr(slash + 1)));
  BLOCKSCALE_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(start))));
  for (const TensorInfo& tensor : header.tensors)
    BLOCKSCALE_RETURN_IF_ERROR(file->WriteAt(start.size() + tensor.begin, data[tensor.name]));
  return file->Commit();
}

}  // namespace blockscale
