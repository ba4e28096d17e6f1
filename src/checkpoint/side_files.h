// The files of a checkpoint folder that are neither weights nor rewritten: tokeniser, generation
// config, chat templates, the model's own .py files, licence, model card.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"

namespace blockscale {

// Whether a name at the top of a folder is such a file: not config.json, not an index, not weights
// of any format (.safetensors, .bin, .pt, .pth, .gguf, .onnx, .h5, .msgpack, .ckpt), not a file of
// an earlier conversion (conversion_*, *.partial), not hidden.
bool IsSideFileName(std::string_view name);

// Their names, sorted; links to files count, folders do not, but for additional_chat_templates,
// whose files come as "additional_chat_templates/NAME".
Result<std::vector<std::string>> ListSideFiles(FileSystem& files, const std::string& folder);

}  // namespace blockscale
