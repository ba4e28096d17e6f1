#include "support/temp_folder.h"

#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "base/status.h"

namespace blockscale::testing {

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "blockscale-XXXXXX").string();
  BLOCKSCALE_CHECK(mkdtemp(pattern.data()) != nullptr, "mkdtemp {}", pattern);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  BLOCKSCALE_CHECK(in.good(), "reading {}", path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  BLOCKSCALE_CHECK(out.good(), "writing {}", path.string());
}

}  // namespace blockscale::testing
