#include "kv/method.h"

#include <gtest/gtest.h>

#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {{"bits", "4", "bits of a number"}, {"share", "0.5", ""}, {"file", "", ""}};
constexpr MethodInfo kInfo{"thing", "does things", "a paper", kParams};

Result<MethodArgs> bind(std::string_view text) {
  GODWIT_ASSIGN(MethodSpec spec, parse_method_spec(text));
  return MethodArgs::bind("gadget", kInfo, spec);
}

TEST(MethodSpec, ParsesNameAndParameters) {
  auto spec = parse_method_spec("thing:bits=2,file=a=b:c,share=");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "thing");
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(spec->params, (Pairs{{"bits", "2"}, {"file", "a=b:c"}, {"share", ""}}));
  EXPECT_TRUE(parse_method_spec("thing")->params.empty());
}

TEST(MethodSpec, RefusesWhatIsNotTheSyntax) {
  for (const char* text : {":", "thing:", "thing:bits", "thing:=2", "thing:bits=2,", "thing:a=1,a=2"}) {
    auto spec = parse_method_spec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(spec.error().message.find(text), std::string::npos) << spec.error().message;
  }
}

TEST(MethodArgs, FillsDefaultsAndConverts) {
  auto args = bind("thing:share=0.25");
  ASSERT_TRUE(args);
  EXPECT_EQ(args->integer("bits", 1, 8).value(), 4);
  EXPECT_EQ(args->real("share", 0, 1).value(), 0.25);
  EXPECT_EQ(args->text("file"), "");
  EXPECT_TRUE(bind("thing:bits=on")->flag("bits").value());
  EXPECT_FALSE(bind("thing:bits=0")->flag("bits").value());
}

TEST(MethodArgs, ErrorsNameMethodAndParameter) {
  EXPECT_EQ(bind("thing:bit=2").error().message, "gadget 'thing' has no parameter 'bit'; it has bits, share, file");
  for (const char* text :
       {"thing:bits=9", "thing:bits=0", "thing:bits=x", "thing:bits=2x", "thing:bits=", "thing:bits=1.5"})
    EXPECT_NE(bind(text)->integer("bits", 1, 8).error().message.find("bits of gadget 'thing'"), std::string::npos);
  for (const char* text : {"thing:share=nan", "thing:share=inf", "thing:share=2", "thing:share=0.5%"})
    EXPECT_FALSE(bind(text)->real("share", 0, 1)) << text;
  EXPECT_FALSE(bind("thing:bits=maybe")->flag("bits"));
}

TEST(KvCodec, TableHasEveryFile) {
  std::vector<std::string_view> names;
  for (const KvCodecRow* row : all_kv_codecs()) {
    names.push_back(row->info.name);
    EXPECT_FALSE(row->info.description.empty());
    EXPECT_FALSE(row->info.reference.empty());
    if (row->make != nullptr && row->info.name != "million" && row->info.name != "xquant") {  // which need files
      EXPECT_EQ(make_kv_formats(row->info.name, 64, 3)->at(2).head_dim, 64);
    }
  }
  for (const char* name :
       {"bf16", "f16", "f32", "gear", "kivi", "ksort", "kvtuner", "million", "mustafar", "q4", "q8", "think", "xquant"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(KvCodec, FormatsAndErrors) {
  EXPECT_EQ(make_kv_format("f32", 128)->page_bytes(), 2u * 64 * 128 * 4);
  EXPECT_EQ(make_kv_format("bf16", 128)->dtype, DType::kBF16);
  // Codes, and a scale and a middle of 16 bits per token.
  EXPECT_EQ(make_kv_format("q8", 128)->page_bytes(), 2u * 64 * (128 + 4));
  EXPECT_EQ(make_kv_format("q4", 128)->page_bytes(), 2u * 64 * (64 + 4));
  EXPECT_EQ(make_kv_format("q4:k=8", 128)->page_bytes(), 64u * (128 + 4 + 64 + 4));
  EXPECT_EQ(make_kv_format("q8", 120)->page_bytes(), 2u * 64 * (120 + 4));
  EXPECT_NE(make_kv_format("q4", 120).error().message.find("120; use q8"), std::string::npos);
  EXPECT_NE(make_kv_format("q4:v=6", 128).error().message.find("4 or 8"), std::string::npos);
  // Scales and middles of K are of dimensions.
  EXPECT_EQ(make_kv_format("kivi", 128)->page_bytes(), 2u * 64 * 32 + 4 * 128 + 4 * 64);
  EXPECT_EQ(make_kv_format("kivi:k=4,v=4", 64)->page_bytes(), 2u * 64 * 32 + 4 * 64 + 4 * 64);
  EXPECT_NE(make_kv_format("kivi", 96).error().message.find("multiple of 64; this model's is 96"), std::string::npos);
  EXPECT_NE(make_kv_format("kivi:k=3", 64).error().message.find("2 or 4"), std::string::npos);
  // A bitmap, and half of the numbers.
  EXPECT_EQ(make_kv_format("mustafar", 64)->page_bytes(), 2u * 64 * (8 + 32 * 2));
  EXPECT_EQ(make_kv_format("mustafar:k=0.75,v=0", 128)->page_bytes(), 64u * (16 + 32 * 2 + 16 + 128 * 2));
  EXPECT_NE(make_kv_format("mustafar", 40).error().message.find("multiple of 16; this model's is 40"),
            std::string::npos);
  EXPECT_NE(make_kv_format("q4:last=100", 64).error().message.find("multiple of 64"), std::string::npos);
  // A page's table and lost tokens; an order and exponents.
  EXPECT_EQ(make_kv_format("ksort", 64)->page_bytes(), 12u + 64 + 2 * 64 * (32 + 4));
  EXPECT_EQ(make_kv_format("ksort:k=8", 128)->page_bytes(), 12u + 128 + 64 * (128 + 8 + 64 + 8));
  EXPECT_NE(make_kv_format("ksort", 48).error().message.find("multiple of 32; this model's is 48"), std::string::npos);
  EXPECT_NE(make_kv_format("ksort:k=6", 64).error().message.find("4 or 8"), std::string::npos);
  EXPECT_NE(make_kv_format("ksort:sort=maybe", 64).error().message.find("on or off"), std::string::npos);
  // A mask, and 38 of 64 channels.
  EXPECT_EQ(make_kv_format("think", 64)->page_bytes(), 12u + 8 + 64 * 38 * 2 + 64 * 64 * 2);
  EXPECT_NE(make_kv_format("think:drop=1", 64).error().message.find("from 0 to 0.95"), std::string::npos);
  EXPECT_NE(make_kv_format("think", 40).error().message.find("multiple of 16"), std::string::npos);
  EXPECT_EQ(make_kv_format("think:file=/nowhere", 64).error().code, ErrorCode::kNotFound);
  // Codes, scales and middles; factors; extremes and where they are.
  EXPECT_EQ(make_kv_format("gear", 64)->page_bytes(), 12u + 2 * 64 * (16 + 4) + 2 * 2 * (64 + 64) * 2 + 2 * 64 * 2 * 3);
  EXPECT_EQ(make_kv_format("gear:rank=0,extremes=0,k=4,v=4", 64)->page_bytes(), 12u + 2 * 64 * (32 + 4));
  EXPECT_NE(make_kv_format("gear:rank=9", 64).error().message.find("0 to 8"), std::string::npos);
  EXPECT_NE(make_kv_format("gear:v=3", 64).error().message.find("2 or 4"), std::string::npos);
  EXPECT_NE(make_kv_format("gear", 96).error().message.find("multiple of 64; this model's is 96"), std::string::npos);
  EXPECT_NE(make_kv_format("million", 64).error().message.find("godwit tune million"), std::string::npos);
  auto unknown = make_kv_format("f61", 128);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.error().message.rfind(
                "no KV codec is named 'f61'; there are bf16, f16, f32, gear, kivi, ksort, kvtuner, million, ", 0),
            0u);
  for (const char* nameless : {"", ":bits=2"})
    EXPECT_EQ(make_kv_format(nameless, 128).error().message,
              "no KV codec is named ''; there are bf16, f16, f32, gear, kivi, ksort, kvtuner, million, mustafar, q4, "
              "q8, think, xquant");
  EXPECT_EQ(make_kv_format("f16:bits=2", 128).error().message, "KV codec 'f16' takes no parameters, so not 'bits'");
}

}  // namespace
}  // namespace godwit
