#include "convert/output_folder.h"

#include <filesystem>
#include <functional>

#include "checkpoint/output_file.h"

namespace blockscale {
namespace {

constexpr uint64_t kMaxStateBytes = 1'000'000'000;
constexpr int kMaxLevels = 3;

bool IsInside(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  auto at = inner.begin();
  for (const std::filesystem::path& part : outer) {
    if (part.empty()) continue;  // a trailing slash
    if (at == inner.end() || *at != part) return false;
    ++at;
  }
  return true;
}

// Calls `visit` with the path (relative to `folder`) of every entry below it that is no folder, so
// many levels down: a link may lead in a circle.
Status WalkFiles(FileSystem& files, const std::string& folder, const std::string& inner, int levels,
                 const std::function<Status(const std::string&)>& visit) {
  const std::string here = inner.empty() ? folder : JoinPath(folder, inner);
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(here));
  for (const std::string& name : names) {
    const std::string path = inner.empty() ? name : JoinPath(inner, name);
    const Result<FileFacts> facts = files.Stat(JoinPath(folder, path));
    // What a link leads to is not ours.
    std::error_code error;
    const bool is_link = std::filesystem::is_symlink(JoinPath(folder, path), error);
    const bool is_folder = facts.ok() && facts->is_directory && !is_link && levels > 0;
    BLOCKSCALE_RETURN_IF_ERROR(is_folder ? WalkFiles(files, folder, path, levels - 1, visit)
                                         : visit(path));
  }
  return OkStatus();
}

Status NotEmpty(const std::string& output, const std::string& name) {
  return Refused(
      "{}: the output folder is not empty (it holds '{}'); continue an earlier run with "
      "--resume or choose another folder",
      output, name);
}

}  // namespace

Status CheckFolders(FileSystem& files, const std::string& source, const std::string& output) {
  if (output.empty()) return InvalidInput("the output folder has no name; give --output DIR");
  std::error_code error;
  const std::filesystem::path from = std::filesystem::weakly_canonical(source, error);
  if (error) return IoError("resolve", source, error.value());
  const std::filesystem::path to = std::filesystem::weakly_canonical(output, error);
  if (error) return IoError("resolve", output, error.value());
  if (IsInside(to, from) || IsInside(from, to))
    return Refused(
        "the output {} and the source {} share a folder; choose an output outside the "
        "source, which is never written to",
        to.string(), from.string());
  if (!files.Exists(output)) return OkStatus();
  BLOCKSCALE_ASSIGN_OR_RETURN(const FileFacts facts, files.Stat(output));
  if (!facts.is_directory) return Refused("{}: the output is a file, not a folder", output);
  return OkStatus();
}

Status CheckOutputFolder(FileSystem& files, const std::string& output, bool resume) {
  if (resume || !files.Exists(output)) return OkStatus();
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(output));
  return names.empty() ? OkStatus() : NotEmpty(output, names.front());
}

Result<OutputFolder> TakeOutputFolder(FileSystem& files, const std::string& output, bool resume) {
  BLOCKSCALE_RETURN_IF_ERROR(files.CreateDirectories(output));
  OutputFolder folder;
  BLOCKSCALE_ASSIGN_OR_RETURN(folder.lock, files.Lock(output));
  std::vector<std::string> partials;
  std::string first_other;
  BLOCKSCALE_RETURN_IF_ERROR(WalkFiles(files, output, "", kMaxLevels, [&](const std::string& path) {
    if (path.ends_with(kPartialSuffix))
      partials.push_back(path);
    else if (first_other.empty())
      first_other = path;
    return OkStatus();
  }));
  const bool empty = partials.empty() && first_other.empty();
  if (!resume && !empty)
    return NotEmpty(output, first_other.empty() ? partials.front() : first_other);
  const std::string state_path = JoinPath(output, kStateFileName);
  if (files.Exists(state_path)) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::string text,
                                ReadTextFile(files, state_path, kMaxStateBytes));
    BLOCKSCALE_ASSIGN_OR_RETURN(folder.state, ParseConversionState(text, state_path));
  } else if (!first_other.empty()) {
    return Refused(
        "{}: holds '{}' but no {}, so no run of blockscale can be continued there; choose "
        "another folder",
        output, first_other, kStateFileName);
  }
  folder.partials = std::move(partials);
  return folder;
}

}  // namespace blockscale
