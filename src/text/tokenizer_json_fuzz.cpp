// Any bytes as tokenizer.json: an error or a tokenizer that encodes and decodes without a fault.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace godwit;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::from_json(json, "", "fuzz");
  if (!tokenizer) return 0;
  constexpr std::string_view kTexts[] = {"",
                                         " ",
                                         "Hello world, don't  panic!\n\n 12345 <s></s><unk>",
                                         "a\xCC\x81 \xE2\x96\x81x\xE2\x96\x81 \xF0\x9F\x98\x80",
                                         std::string_view("\xFF\x00\x80 ab \xC3", 9),
                                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};
  for (const std::string_view text : kTexts) {
    for (const bool parse_special : {false, true}) {
      const auto ids = tokenizer->encode(text, {.parse_special = parse_special});
      if (!ids) continue;
      StreamDecoder stream(*tokenizer);
      std::string all;
      for (const TokenId id : *ids) {
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
        all += stream.push(id);
      }
      all += stream.flush();
      if (all != utf8_lossy(tokenizer->decode(*ids))) std::abort();
    }
  }
  if (const auto vocab = tokenizer->to_gguf_vocab()) {
    const auto again = Tokenizer::from_gguf(*vocab, "fuzz");
    if (again) (void)again->encode(kTexts[2]);
  }
  return 0;
}
