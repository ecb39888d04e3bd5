#include "server/router.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include <fmt/chrono.h>

#include "base/result.h"
#include "server/json_text.h"
#include "server/page.h"

namespace godwit::server {
namespace {

enum class Kind { kPage, kHealth, kVersion, kMetrics, kEndpoint };
struct Route {
  std::string_view method, path;  // a path that ends with / stands for all that go on from there, but / itself for none
  Kind kind;
  Endpoint endpoint;

  bool needs_key() const { return kind == Kind::kEndpoint || kind == Kind::kMetrics; }
  bool matches(std::string_view p) const {
    return path == p || (path.size() > 1 && path.ends_with('/') && p.starts_with(path));
  }
};

constexpr Route kRoutes[] = {
    {"GET", "/", Kind::kPage, nullptr},
    {"GET", "/page.css", Kind::kPage, nullptr},
    {"GET", "/page.js", Kind::kPage, nullptr},
    {"GET", "/health", Kind::kHealth, nullptr},
    {"GET", "/version", Kind::kVersion, nullptr},
    {"GET", "/metrics", Kind::kMetrics, nullptr},
    {"POST", "/v1/chat/completions", Kind::kEndpoint, chat_completions},
    {"POST", "/v1/completions", Kind::kEndpoint, completions},
    {"POST", "/v1/responses", Kind::kEndpoint, responses},
    {"POST", "/v1/messages", Kind::kEndpoint, messages},
    {"POST", "/v1/messages/count_tokens", Kind::kEndpoint, count_message_tokens},
    {"POST", "/v1/embeddings", Kind::kEndpoint, embeddings},
    {"GET", "/v1/models", Kind::kEndpoint, models},
    {"GET", "/v1/models/", Kind::kEndpoint, model},
    {"GET", "/status", Kind::kEndpoint, status},
    {"POST", "/tokenize", Kind::kEndpoint, tokenize},
    {"POST", "/detokenize", Kind::kEndpoint, detokenize},
};

// HEAD asks like GET; the connection leaves the body out.
const Route* find_route(std::string_view path, std::string_view method) {
  if (method == "HEAD") method = "GET";
  for (const Route& route : kRoutes)
    if (route.matches(path) && route.method == method) return &route;
  return nullptr;
}

bool sane(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device()()};
  return fmt::format("{:016x}", random());
}

std::string_view key_of(const Request& request) {
  const std::string_view bearer = request.header("authorization");
  if (bearer.starts_with("Bearer ")) return bearer.substr(7);
  return request.header("x-api-key");
}

ApiError no_key() {
  return {.status = 401,
          .message = "no valid API key; send 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
          .code = "invalid_api_key"};
}

std::vector<std::string> names_of(const Options& options, const EngineInfo& info) {
  if (!options.model_names.empty()) return options.model_names;
  std::filesystem::path path(info.model);
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  if (path.extension() == ".gguf") path = path.stem();
  return {path.filename().string()};
}

}  // namespace

Status Router::load_keys() {
  if (options_.key_file.empty()) return {};
  GODWIT_ASSIGN(keys_, ApiKeys::load(options_.key_file));
  return {};
}

void Router::serve(const Engine& engine, Service& service) {
  EngineInfo info = engine.info();
  auto names = names_of(options_, info);
  auto app = std::make_shared<const App>(
      App{engine, service, options_, metrics_, std::move(names), std::time(nullptr), std::move(info)});
  std::lock_guard lock(mutex_);
  app_ = std::move(app);
}

std::shared_ptr<const App> Router::app() const {
  std::lock_guard lock(mutex_);
  return app_;
}

std::optional<Response> Router::admit(const Request& head) const {
  const Route* route = find_route(head.path, head.method);
  if (!keys_ || (route != nullptr && !route->needs_key()) || keys_->find(key_of(head))) return std::nullopt;
  return to_response(no_key(), style_of(head.path), {});
}

void Router::identify(const Request& request, Reply& reply) const {
  RequestRecord& record = reply.record();
  const std::string_view given = request.header("x-request-id");
  record.id = sane(given) ? std::string(given) : new_id();
  if (keys_) record.principal = keys_->find(key_of(request)).value_or("");
}

void Router::handle(const RequestPtr& request, const ReplyPtr& reply) {
  ApiError error;
  try {
    auto done = route(request, reply);
    if (done) return;
    error = std::move(done).error();
  } catch (const std::bad_alloc&) {
    error = {.status = 503, .message = "there is not enough memory for this request", .code = "out_of_memory"};
  } catch (const std::exception& e) {
    std::fprintf(stderr, "godwit: a request failed: %s\n", e.what());
    error = {
        .status = 500, .message = "this request met a fault in the server; it is logged", .code = "internal_error"};
  }
  const std::string& id = reply->record().id;
  Response response = to_response(error, style_of(request->path), id);
  response.headers.emplace_back("X-Request-Id", id);
  if (error.status == 405) {
    std::string allow;
    for (const Route& route : kRoutes)
      if (route.matches(request->path))
        allow += (allow.empty() ? "" : ", ") + std::string(route.method == "GET" ? "GET, HEAD" : route.method);
    response.headers.emplace_back("Allow", allow);
  }
  reply->send(std::move(response));
}

ApiResult<void> Router::route(const RequestPtr& request, const ReplyPtr& reply) {
  const Route* route = find_route(request->path, request->method);
  if (route == nullptr) {
    if (std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) { return r.matches(request->path); }))
      return tl::unexpected(
          ApiError{.status = 405, .message = fmt::format("{} is not how to ask this", request->method)});
    return tl::unexpected(
        ApiError{.status = 404, .message = "there is nothing here; docs/server.md lists the endpoints"});
  }
  const RequestRecord& record = reply->record();
  if (route->needs_key() && keys_ && record.principal.empty()) return tl::unexpected(no_key());
  const auto app = this->app();
  const Headers headers{{"X-Request-Id", record.id}};
  switch (route->kind) {
    case Kind::kPage:
      reply->send(page_response(*request));
      return {};
    case Kind::kHealth:
      reply->send(
          {app ? 200 : 503, app ? R"({"status":"ok"})" : R"({"status":"loading"})", "application/json", headers});
      return {};
    case Kind::kVersion:
      reply->send({200, R"({"version":")" GODWIT_VERSION R"("})", "application/json", headers});
      return {};
    case Kind::kMetrics:
      reply->send(metrics_response());
      return {};
    case Kind::kEndpoint:
      break;
  }
  if (!app)
    return tl::unexpected(ApiError{
        .status = 503, .message = "the model is still being loaded", .code = "loading", .retry_after_seconds = 1});
  return route->endpoint(*app, {request, reply, record.principal, record.id});
}

Response Router::metrics_response() const {
  const auto app = this->app();
  std::optional<ServiceStats> stats;
  if (app) stats = app->service.stats();
  return {
      200, metrics_.text(app ? app->names.front() : "", stats ? &*stats : nullptr), "text/plain; version=0.0.4", {}};
}

void Router::over(const RequestRecord& record) {
  const Route* route = find_route(record.path, record.method);
  metrics_.request_over(record, route != nullptr ? route->path : "other");
  if (!options_.log) return;
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - record.begin).count();
  // Neither query nor headers nor body: they may hold secrets.
  Json line = {
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<time_t>(ms / 1000)), ms % 1000)},
      {"level", record.status >= 500 ? "error" : "info"},
      {"request_id", record.id},
      {"principal", record.principal},
      {"peer", record.peer},
      {"method", record.method.substr(0, 16)},
      {"path", record.path.substr(0, 128)},
      {"status", record.status},
      {"seconds", std::round(seconds * 1e4) / 1e4}};
  if (record.gone) line["client_gone"] = true;
  if (record.prompt_tokens > 0) {
    line["prompt_tokens"] = record.prompt_tokens;
    line["cached_tokens"] = record.cached_tokens;
    line["completion_tokens"] = record.completion_tokens;
    line["first_token_seconds"] = std::round(record.first_token_seconds * 1e4) / 1e4;
    line["finish"] = record.finish;
  }
  const std::string text = json_text(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace godwit::server
