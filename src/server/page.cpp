#include "server/page.h"

#include <array>

#include <fmt/format.h>

#include "base/check.h"

// The assembler includes the files as they are.
#define GODWIT_PAGE_FILE(name, file)                                              \
  asm(".section .rodata\n"                                                        \
      "godwit_page_" #name                                                        \
      "_begin:\n"                                                                 \
      ".incbin \"" GODWIT_PAGE "/" file                                           \
      "\"\n"                                                                      \
      "godwit_page_" #name                                                        \
      "_end:\n"                                                                   \
      ".byte 0\n"                                                                 \
      ".previous\n");                                                             \
  extern "C" const char godwit_page_##name##_begin[], godwit_page_##name##_end[]; \
  static std::string_view name() {                                                \
    return {godwit_page_##name##_begin, godwit_page_##name##_end};                \
  }

GODWIT_PAGE_FILE(html, "index.html")
GODWIT_PAGE_FILE(css, "page.css")
GODWIT_PAGE_FILE(js, "page.js")

namespace godwit::server {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

struct Asset {
  std::string_view path, type, content;
  std::string tag;

  Asset(std::string_view p, std::string_view t, std::string_view c) : path(p), type(t), content(c) {
    uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (unsigned char byte : content) hash = (hash ^ byte) * 1099511628211U;
    tag = fmt::format("\"{:016x}\"", hash);
  }
};

const Asset& asset_at(std::string_view path) {
  static const std::array<Asset, 3> assets = {Asset("/", "text/html; charset=utf-8", html()),
                                              Asset("/page.css", "text/css; charset=utf-8", css()),
                                              Asset("/page.js", "text/javascript; charset=utf-8", js())};
  for (const Asset& asset : assets)
    if (asset.path == path) return asset;
  GODWIT_CHECK(false, "no file of the page");
}

}  // namespace

Response page_response(const Request& request) {
  const Asset& asset = asset_at(request.path);
  const Headers headers = {{"ETag", asset.tag},
                           {"Cache-Control", "no-cache"},  // kept, and asked for again: a new server has a new page
                           {"Content-Security-Policy", kPolicy},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"}};
  if (request.header("if-none-match").find(asset.tag) != std::string_view::npos) return {304, {}, {}, headers};
  return {200, std::string(asset.content), std::string(asset.type), headers};
}

}  // namespace godwit::server
