// The output folder before the first byte is written: that it is not the source's, that nobody else
// writes there, that what lies in it belongs to this conversion, and that there is room.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "convert/journal.h"

namespace blockscale {

// Refuses an output that is the source folder, lies in it, or holds it; links are resolved first.
Status CheckFolders(FileSystem& files, const std::string& source, const std::string& output);

// Refuses, without touching anything, a folder that TakeOutputFolder would refuse for what lies in
// it.
Status CheckOutputFolder(FileSystem& files, const std::string& output, bool resume);

struct OutputFolder {
  std::unique_ptr<FileLock> lock;        // held while it lives
  std::optional<ConversionState> state;  // of the run to be continued
  std::vector<std::string> partials;     // files of that ending, relative to the folder
};

// Creates the folder where needed and takes it. Without `resume` it must be empty; with `resume` it
// must hold a state, or nothing but partial files. Nothing is removed: links are not followed, and
// what is not ours stays.
Result<OutputFolder> TakeOutputFolder(FileSystem& files, const std::string& output, bool resume);

}  // namespace blockscale
