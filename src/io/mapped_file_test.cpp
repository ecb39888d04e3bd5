#include "io/mapped_file.h"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

TEST(MappedFile, ReadsAndStaysAfterTheFileIsReplaced) {
  TempFolder folder;
  write_file(folder / "a", "hello");
  auto file = MappedFile::open(folder / "a");
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->text(), "hello");
  EXPECT_EQ((*file)->bytes().size(), 5u);
  write_file(folder / "b", "other");
  std::filesystem::rename(folder / "b", folder / "a");
  EXPECT_EQ((*file)->text(), "hello");
}

// Kilobytes of this process's memory that are pages of files.
size_t file_pages_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssFile:", 0) == 0) return std::stoul(line.substr(8));
  return 0;
}

TEST(MappedFile, PagesCanBeLetGoAndComeBack) {
  TempFolder folder;
  const std::string text(size_t{8} << 20, 'x');
  write_file(folder / "a", text);
  auto file = MappedFile::open(folder / "a");
  ASSERT_TRUE(file);
  ASSERT_EQ((*file)->text(), text);
  const size_t before = file_pages_kib();
  ASSERT_GT(before, 8U * 1024);
  MappedFile::let_go((*file)->bytes().subspan(1, text.size() - 2));
  EXPECT_LT(file_pages_kib() + 7 * 1024, before);
  MappedFile::let_go((*file)->bytes().first(10));  // not a page
  EXPECT_EQ((*file)->text(), text);
}

TEST(MappedFile, ErrorsSayWhatIsWrong) {
  TempFolder folder;
  write_file(folder / "empty", "");
  write_file(folder / "secret", "x");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(MappedFile::open(folder / "gone"), ErrorCode::kNotFound, "gone: no such file");
  expect_error(MappedFile::open(folder / "secret" / "x"), ErrorCode::kNotFound, "no such file");
  expect_error(MappedFile::open(folder.path()), ErrorCode::kInvalidArgument, "is a folder");
  expect_error(MappedFile::open(folder / "pipe"), ErrorCode::kInvalidArgument, "not a regular file");
  expect_error(MappedFile::open(folder / "empty"), ErrorCode::kBadData, "empty: the file is empty");
  expect_error(MappedFile::open(folder / std::string(300, 'n')), ErrorCode::kIo, "File name too long");
  if (geteuid() == 0) return;  // root may read everything
  std::filesystem::permissions(folder / "secret", std::filesystem::perms::none);
  expect_error(MappedFile::open(folder / "secret"), ErrorCode::kIo, "Permission denied");
}

TEST(TensorEntry, BytesOfAShape) {
  EXPECT_EQ(tensor_bytes(DType::kF32, std::array<int64_t, 2>{3, 5}).value(), 60u);
  EXPECT_EQ(tensor_bytes(DType::kQ4_K, std::array<int64_t, 2>{2, 512}).value(), 4u * 144);
  EXPECT_EQ(tensor_bytes(DType::kF32, std::array<int64_t, 2>{0, 5}).value(), 0u);
  EXPECT_FALSE(tensor_bytes(DType::kF32, {}));
}

TEST(TensorEntry, PrintableNames) {
  EXPECT_EQ(printable("blk.0.é"), "blk.0.é");
  EXPECT_EQ(printable("a\x1b\xff\n"), "a\\x1b\\xff\\x0a");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable(std::string(101, 'x')), std::string(100, 'x') + "…");
}

}  // namespace
}  // namespace godwit
