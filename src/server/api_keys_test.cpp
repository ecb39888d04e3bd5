#include "server/api_keys.h"

#include <gtest/gtest.h>

namespace godwit::server {
namespace {

TEST(ApiKeys, FindTheNameOfAKey) {
  const ApiKeys keys = ApiKeys::parse("# team\nann:sk-1\r\n\nbob:sk-2:with:colons \nann:sk-3", "keys").value();
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys.find("sk-1"), "ann");
  EXPECT_EQ(keys.find("sk-2:with:colons"), "bob");
  EXPECT_EQ(keys.find("sk-3"), "ann");
  for (const char* wrong : {"", "sk", "sk-", "sk-1 ", "sk-11", "ann:sk-1"}) EXPECT_EQ(keys.find(wrong), std::nullopt);
}

TEST(ApiKeys, RefuseFilesWithoutShowingThem) {
  for (const char* text : {"", "# nothing\n", "ann\n", ":secret\n", "ann:\n", "ann:secret\nbob:secret\n"}) {
    const auto keys = ApiKeys::parse(text, "keys.txt");
    ASSERT_FALSE(keys.has_value()) << text;
    EXPECT_EQ(keys.error().message.find("secret"), std::string::npos);
    EXPECT_NE(keys.error().message.find("keys.txt"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::load("/no/such/file").has_value());
}

}  // namespace
}  // namespace godwit::server
