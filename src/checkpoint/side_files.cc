#include "checkpoint/side_files.h"

#include <algorithm>
#include <array>

#include "checkpoint/hf_config.h"

namespace blockscale {
namespace {

constexpr std::string_view kWeightEndings[] = {".safetensors", ".bin", ".pt",      ".pth", ".gguf",
                                               ".onnx",        ".h5",  ".msgpack", ".ckpt"};
constexpr char kTemplateFolder[] = "additional_chat_templates";

}  // namespace

bool IsSideFileName(std::string_view name) {
  if (name.empty() || name.front() == '.' || name == kConfigFileName) return false;
  if (name.ends_with(".index.json") || name.ends_with(".partial")) return false;
  if (name.starts_with("conversion_")) return false;
  return std::none_of(std::begin(kWeightEndings), std::end(kWeightEndings),
                      [&](std::string_view ending) { return name.ends_with(ending); });
}

Result<std::vector<std::string>> ListSideFiles(FileSystem& files, const std::string& folder) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (!IsSideFileName(name)) continue;
    BLOCKSCALE_ASSIGN_OR_RETURN(const FileFacts facts, files.Stat(JoinPath(folder, name)));
    if (!facts.is_directory) {
      found.push_back(name);
    } else if (name == kTemplateFolder) {
      BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> inner,
                                  files.List(JoinPath(folder, name)));
      for (const std::string& file : inner)
        if (IsSideFileName(file)) found.push_back(JoinPath(name, file));
    }
  }
  return found;
}

}  // namespace blockscale
