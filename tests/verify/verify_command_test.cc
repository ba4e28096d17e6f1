// `blockscale verify` from the outside: where its reports may go, and what it says and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.h"
#include "verify/verify_fixture.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT
namespace fs = std::filesystem;

class VerifyCommand : public VerifyTest {
 protected:
  ProgramRun Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"verify", "--source", folder_ / "source", "--converted",
                                          folder_ / "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  void Break() {
    Converted converted = Convert();
    converted.codes[0] = static_cast<char>(converted.codes[0] ^ 1);
    Set(good_, converted);
    Write(good_);
  }
  // Programs run in the folder of the test.
  class InFolder {
   public:
    explicit InFolder(const std::string& folder) : back_(fs::current_path()) {
      fs::current_path(folder);
    }
    ~InFolder() { fs::current_path(back_); }

   private:
    fs::path back_;
  };
  size_t FilesIn(const std::string& folder) {
    return static_cast<size_t>(std::distance(fs::recursive_directory_iterator(folder), {}));
  }
};

TEST_F(VerifyCommand, ReportsMayHaveBareNames) {
  fs::create_directory(folder_ / "here");
  const InFolder here(folder_ / "here");
  const ProgramRun run = Run({"--report", "r.json", "--html", "r.html"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(FilesIn(folder_ / "here"), 2u);  // and no partial
  EXPECT_EQ(nlohmann::json::parse(ReadFile(folder_ / "here/r.json"))["holds"], true);
  EXPECT_THAT(ReadFile(folder_ / "here/r.html"), HasSubstr("everything holds"));
}

TEST_F(VerifyCommand, NoReportTakesTheNameOfAPartOfTheCheckpoint) {
  Write(good_);
  for (const char* name : {"config.json", "model.safetensors.index.json", "m.safetensors"}) {
    const std::string before = ReadFile(fs::path(folder_ / "out") / name);
    const ProgramRun run = Run({"--report", (fs::path(folder_ / "out") / name).string()});
    EXPECT_EQ(run.exit_code, 2) << name;
    EXPECT_THAT(run.err, HasSubstr("part of a checkpoint"));
    EXPECT_EQ(ReadFile(fs::path(folder_ / "out") / name), before);
  }
  EXPECT_EQ(Run({"--report", folder_ / "out/verified.json"}).exit_code, 0);
  EXPECT_EQ(Run({"--report", folder_ / "out/verified.json"}).exit_code, 0);
}

TEST_F(VerifyCommand, NothingIsWrittenIntoTheSourceHoweverItIsNamed) {
  fs::create_directory(folder_ / "source/sub");
  fs::create_directory_symlink(folder_ / "source", folder_ / "link");
  const size_t files = FilesIn(folder_ / "source");
  const auto refused = [&](const std::string& path) {
    for (const char* flag : {"--report", "--html"}) {
      const ProgramRun run = Run({flag, path});
      EXPECT_EQ(run.exit_code, 2) << path;
      EXPECT_THAT(run.err, HasSubstr("never written to")) << path;
      EXPECT_EQ(run.out, "") << "it was refused only after the work";
    }
    EXPECT_EQ(FilesIn(folder_ / "source"), files) << path;
  };
  refused(folder_ / "source/r");
  refused(folder_ / "source/sub/r");
  refused(folder_ / "source/new/deeper/r");
  refused(folder_ / "out/../source/r");
  refused(folder_ / "link/r");
  refused(folder_ / "link/sub/r");
  const InFolder here(folder_ / "source");
  refused("r");
  refused("./r");
}

TEST_F(VerifyCommand, AFolderBesideTheSourceIsNotTheSource) {
  fs::create_directory(folder_ / "source2");
  EXPECT_EQ(Run({"--report", folder_ / "source2/r.json"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "source2/r.json"));
}

TEST_F(VerifyCommand, ALinkInPlaceOfTheReportIsReplacedAndNotFollowed) {
  fs::create_symlink(folder_ / "source/tokenizer.json", folder_ / "r.json");
  EXPECT_EQ(Run({"--report", folder_ / "r.json"}).exit_code, 0);
  EXPECT_EQ(ReadFile(folder_ / "source/tokenizer.json"), "{}");
  EXPECT_FALSE(fs::is_symlink(folder_ / "r.json"));
}

TEST_F(VerifyCommand, PlacesThatAreNoFilesAreRefusedFirst) {
  for (const std::string& path : {folder_ / "out", folder_ / "out/", folder_ / "none/"}) {
    const ProgramRun run = Run({"--report", path});
    EXPECT_EQ(run.exit_code, 2) << path;
    EXPECT_THAT(run.err, HasSubstr("is a folder")) << path;
  }
  const ProgramRun same = Run({"--report", folder_ / "r", "--html", folder_ / "none/../r"});
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_THAT(same.err, HasSubstr("give each its own"));
}

TEST_F(VerifyCommand, PrintsWhatTheReportFileHolds) {
  Break();
  const ProgramRun run = Run({"--json", "--report", folder_ / "r.json"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, ReadFile(folder_ / "r.json"));
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["holds"], false);
  EXPECT_EQ(json["failures"][0]["object"], kName + ".weight");
}

TEST_F(VerifyCommand, QuietIsQuietOnlyWhereEverythingHolds) {
  const ProgramRun good = Run({"--quiet"});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.out + good.err, "");
  Break();
  const ProgramRun bad = Run({"--quiet"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.out, "");
  EXPECT_THAT(bad.err, AllOf(HasSubstr("FAILED"), HasSubstr(kName + ".weight: 1 elements")));
}

TEST_F(VerifyCommand, PathsNeedNotBeUtf8) {
  const std::string odd = folder_ / "odd\xff";
  fs::rename(folder_ / "source", odd);
  const ProgramRun run = RunProgram({"verify", "--source", odd, "--converted", folder_ / "out",
                                     "--json", "--html", folder_ / "r.html"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(nlohmann::json::parse(run.out)["source"].get<std::string>(),
              HasSubstr("odd\xEF\xBF\xBD"));
}

}  // namespace
}  // namespace blockscale
