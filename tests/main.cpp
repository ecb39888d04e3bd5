// The main of every test program. testing::TempDir() is a folder of this process alone, which goes with it: tests run
// at the same time, from several build trees too, and name their files as they like.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string folder = (std::filesystem::temp_directory_path() / "godwit_test_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr || ::setenv("TEST_TMPDIR", folder.c_str(), 1) != 0) {
    std::perror(folder.c_str());
    return 1;
  }
  const int code = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}
