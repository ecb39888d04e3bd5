// Any bytes as a template, rendered over a small conversation: must end, within the limits, with text or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace godwit::jinja;
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Grüße\n"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "xs": [3, 1, 2], "s": "text", "n": 7, "add_generation_prompt": true, "bos_token": "<s>"})");
  RenderOptions options;
  options.limits.max_steps = 20'000;
  options.limits.max_memory_bytes = 1 << 20;
  options.limits.max_output_bytes = 1 << 20;
  options.now = CivilTime{2024, 7, 26, 13, 5, 9};
  auto compiled = Template::parse(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz", options.limits);
  if (compiled) (void)compiled->render(context, options);
  return 0;
}
