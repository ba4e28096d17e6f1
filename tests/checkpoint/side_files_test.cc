#include "checkpoint/side_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::ElementsAre;

TEST(SideFiles, AreEverythingButWeightsConfigAndIndex) {
  for (const char* yes : {"tokenizer.json", "generation_config.json", "chat_template.jinja",
                          "modeling_x.py", "LICENSE", "README.md", "merges.txt", "vocab.json"})
    EXPECT_TRUE(IsSideFileName(yes)) << yes;
  for (const char* no :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "x.pt", "x.gguf", ".gitattributes", "", "conversion_state.json", "tokenizer.json.partial"})
    EXPECT_FALSE(IsSideFileName(no)) << no;
}

TEST(SideFiles, FollowsLinksAndLeavesFolders) {
  testing::TempFolder folder;
  testing::WriteFile(folder / "blobs/1", "{}");
  testing::WriteFile(folder / "snapshot/additional_chat_templates/tool.jinja", "t");
  testing::WriteFile(folder / "snapshot/original/x.txt", "t");
  std::filesystem::create_symlink("../blobs/1", folder / "snapshot/tokenizer.json");
  EXPECT_THAT(*ListSideFiles(PosixFileSystem(), folder / "snapshot"),
              ElementsAre("additional_chat_templates/tool.jinja", "tokenizer.json"));
}

}  // namespace
}  // namespace blockscale
