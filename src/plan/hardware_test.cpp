#include "plan/hardware.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace godwit::plan {
namespace {

const std::string kDevice = R"({"kind": "device", "name": "x", "description": "a device", "constants": {
  "memory_gb": {"value": 80, "source": "published"}, "matmul_tflops": {"value": 500, "source": "fitted", "note": "n"},
  "attention_tflops": {"value": 400, "source": "fitted"}, "weight_gb_per_s": {"value": 2000, "source": "measured"},
  "kv_gb_per_s": {"value": 1500, "source": "measured"}, "elementwise_gb_per_s": {"value": 1000, "source": "assumed"},
  "activation_bytes": {"value": 2, "source": "published"}, "partial_bytes": {"value": 4, "source": "published"}}})";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

void expect_refused(const std::string& text, const std::string& word) {
  const Result<Device> device = parse_device(text, "d.json");
  ASSERT_FALSE(device) << word;
  EXPECT_NE(device.error().message.find(word), std::string::npos) << device.error().message;
  EXPECT_NE(device.error().message.find("d.json"), std::string::npos) << device.error().message;
}

TEST(Hardware, ReadsUnitsSourcesAndNotes) {
  const Device device = *parse_device(kDevice, "d.json");
  EXPECT_EQ(device.memory_bytes, 80e9);
  EXPECT_EQ(device.matmul_flops, 500e12);
  EXPECT_EQ(device.kv_bytes_per_s, 1500e9);
  EXPECT_EQ(device.prefill_layer_s, 0);  // optional
  ASSERT_EQ(device.constants.size(), 8U);
  EXPECT_EQ(device.constants[1].key, "matmul_tflops");
  EXPECT_EQ(device.constants[1].source, "fitted");
  EXPECT_EQ(device.constants[1].note, "n");
}

TEST(Hardware, WrittenAndReadItIsTheSame) {
  const Device device = *find_device("h100");
  const Device again = *parse_device(device_text(device), "again");
  EXPECT_EQ(device_text(again), device_text(device));
  EXPECT_EQ(again.all_reduce_bytes_per_s, device.all_reduce_bytes_per_s);
}

TEST(Hardware, AllThatIsCompiledInCanBeRead) {
  EXPECT_GE(device_names().size(), 2U);
  EXPECT_GE(link_names().size(), 4U);
  for (const std::string& name : device_names()) {
    const Result<Device> device = find_device(name);
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_EQ(device->name, name);
  }
  for (const std::string& name : link_names()) {
    const Result<Link> link = find_link(name);
    ASSERT_TRUE(link) << link.error().message;
    EXPECT_EQ(link->name, name);
  }
}

TEST(Hardware, HostileFilesAreRefusedByName) {
  expect_refused("", "JSON");
  expect_refused("[1]", "object");
  expect_refused(std::string(100000, ' ') + kDevice, "limit");
  expect_refused(replaced(kDevice, "\"device\"", "\"link\""), "'device' is wanted");
  expect_refused(replaced(kDevice, "\"memory_gb\"", "\"memory_mb\""), "memory_mb");
  expect_refused(replaced(kDevice, "\"memory_gb\"", "\"\\u001b[2J\""), "unprintable");
  expect_refused(replaced(kDevice, "\"name\": \"x\"", "\"name\": \"\\u001b[2J\""), "printable");
  expect_refused(replaced(kDevice, "\"name\": \"x\", ", ""), "name");
  expect_refused(
      replaced(kDevice, "\"partial_bytes\": {\"value\": 4, \"source\": \"published\"}", "\"chunk_tokens\": 3"),
      "partial_bytes");
  for (const char* value : {"0", "-1", "1e300", "\"80\"", "{}", "null", "[80]"})
    expect_refused(replaced(kDevice, "\"value\": 80", std::string("\"value\": ") + value), "memory_gb");
  expect_refused(replaced(kDevice, "\"published\"", "\"guessed\""), "published, measured, fitted, assumed");
  expect_refused(replaced(kDevice, "{\"value\": 80, \"source\": \"published\"}", "80"), "memory_gb");
}

TEST(Hardware, FilesAreFoundByPath) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "godwit_hardware_test.json";
  std::ofstream(path) << kDevice;
  const Result<Device> device = find_device(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(device->name, "x");
  const Result<Device> nowhere = find_device("h1000");
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("h100, h200"), std::string::npos) << nowhere.error().message;
  EXPECT_FALSE(find_device(testing::TempDir()));
  EXPECT_FALSE(find_link("h100"));
}

}  // namespace
}  // namespace godwit::plan
