// Runs a fuzz target without a fuzzer, in the ordinary test build: over each file of a folder, over
// each prefix of it, and with each byte replaced by a few others.
// usage: replay FOLDER

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

size_t runs = 0;

// On the heap and exactly as long as the input, so that a sanitizer sees a read past its end.
void Run(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++runs;
}

void RunWithNeighbours(const std::string& input) {
  Run(input);
  for (size_t size = 0; size < input.size(); ++size) Run(input.substr(0, size));
  for (size_t at = 0; at < input.size(); ++at)
    for (const char byte : {'\0', '"', '{', ']', '9', '-', '\\', '\n', '\x7f', '\xff'}) {
      std::string changed = input;
      changed[at] = byte;
      Run(changed);
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::printf("%s\n", entry.path().filename().c_str());  // the last one named is the culprit
    std::fflush(stdout);
    std::ifstream file(entry.path(), std::ios::binary);
    RunWithNeighbours({std::istreambuf_iterator<char>(file), {}});
    ++files;
  }
  std::printf("%zu files, %zu runs\n", files, runs);
  return files == 0 ? 1 : 0;
}
