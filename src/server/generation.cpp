#include "server/generation.h"

#include <chrono>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace godwit::server {
namespace asio = boost::asio;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Keeps nothing of the request: its body may be large.
  Generation(const App& app, const Call& call, bool stream, std::unique_ptr<AnswerForm> form)
      : app_(app),
        reply_(call.reply),
        principal_(call.principal),
        id_(call.id),
        style_(style_of(call.request->path)),
        stream_(stream),
        form_(std::move(form)) {}

  // On the strand, as all below.
  void start(const Plan& plan) {
    guarded([&] { submit(plan); });
  }

 private:
  struct Answer {
    uint64_t id = 0;
    bool over = false;
    Clock::time_point last;  // token
    double first_token = 0;
  };

  void submit(const Plan& plan) {
    constrained_ = plan.options.constraint != nullptr;
    const size_t count = plan.prompts.size() * static_cast<size_t>(plan.choices);
    answers_.resize(count);
    running_ = count;
    for (size_t i = 0; i < count; ++i) {
      ServiceRequest request{.prompt = plan.prompts[i / static_cast<size_t>(plan.choices)],
                             .options = plan.options,
                             .principal = principal_,
                             .salt = plan.salt,
                             .priority = plan.priority,
                             .embed = plan.embed,
                             .name = id_,
                             .kv = plan.kv,
                             .ranks = plan.ranks};
      request.options.sampling.seed += i;
      const auto prompt_tokens = static_cast<int>(request.prompt.size());
      auto id = app_.service.submit(std::move(request), callbacks(i, plan.progress));
      if (!id) {
        running_ = i;  // of those that are on their way, the ends are still to come
        ApiError error = to_api_error(id.error());
        if (error.status == 429) {
          const ServiceStats stats = app_.service.stats();
          error.retry_after_seconds = 1 + static_cast<int>(stats.waiting / 32);
        }
        return fail(error);
      }
      answers_[i].id = *id;
      if (i % static_cast<size_t>(plan.choices) == 0) usage_.prompt_tokens += prompt_tokens;
    }
    reply_->record().prompt_tokens = usage_.prompt_tokens;
    choices_ = static_cast<size_t>(plan.choices);
    reply_->when_gone([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->cancel();
    });
  }

  ServiceCallbacks callbacks(size_t i, bool progress) {
    auto self = shared_from_this();
    ServiceCallbacks all{[self, i](const Piece& piece) {
                           asio::post(self->reply_->strand(), [self, i, piece, now = Clock::now()] {
                             self->guarded([&] { self->on_piece(i, piece, now); });
                           });
                         },
                         [self, i](const ServiceAnswer& end) {
                           asio::post(self->reply_->strand(), [self, i, end, now = Clock::now()] {
                             self->guarded([&] { self->on_end(i, end, now); });
                           });
                         }};
    if (progress)
      all.on_progress = [self, i](const RequestStatus& status) {
        asio::post(self->reply_->strand(), [self, i, status] {
          self->guarded([&] {
            if (!self->failed_) self->say(self->form_->progress(i, status));
          });
        });
      };
    return all;
  }

  // A fault of ours here must not end the thread, and with it everybody else's connection.
  template <class F>
  void guarded(F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "godwit: request %s failed: %s\n", id_.c_str(), e.what());
      fail(
          {.status = 500, .message = "this request met a fault in the server; it is logged", .code = "internal_error"});
    }
  }

  void on_piece(size_t i, const Piece& piece, Clock::time_point now) {
    Answer& answer = answers_[i];
    if (piece.is_new) {
      ++reply_->record().completion_tokens;
      if (answer.first_token == 0) {
        answer.first_token = seconds_between(begin_, now);
        if (reply_->record().first_token_seconds == 0) reply_->record().first_token_seconds = answer.first_token;
      } else {
        app_.metrics.token_after(seconds_between(answer.last, now));
      }
      answer.last = now;
    }
    if (!failed_) say(form_->piece(i, piece));
  }

  void on_end(size_t i, const ServiceAnswer& end, Clock::time_point now) {
    Answer& answer = answers_[i];
    answer.over = true;
    --running_;
    app_.metrics.answer_over(end, {end.waited_seconds, answer.first_token, seconds_between(begin_, now)});
    RequestRecord& record = reply_->record();
    usage_.completion_tokens += end.completion_tokens;
    if (app_.info.ranks > 1) usage_.ranks = end.ranks;
    // Answers to the same prompt share it; what the first one found is what was there before the request.
    if (i % choices_ == 0) usage_.cached_tokens += end.cached_tokens;
    record.cached_tokens = usage_.cached_tokens;
    if (!record.finish.empty()) record.finish += ',';
    record.finish += finish_name(end.finish);
    if (failed_) return;
    if (end.finish == FinishReason::kKvExhausted)
      return fail({.status = 400, .message = end.error, .code = "kv_memory_exceeded"});
    // What goes wrong with a schema's grammar while it is walked is the schema's fault.
    if (!end.error.empty())
      return fail({.status = constrained_ ? 400 : 500, .message = end.error, .code = "engine_error"});
    if (end.finish == FinishReason::kCancelled)
      return fail({.status = 503, .message = "the server is shutting down", .code = "shutting_down"});
    say(form_->answer_end(i, end));
    if (running_ > 0) return;
    std::string last = form_->end(usage_);
    if (!stream_) return reply_->send({200, std::move(last), "application/json", headers()});
    say(std::move(last));
    reply_->end();
  }

  void say(std::string bytes) {
    if (bytes.empty() || !stream_) return;
    if (!std::exchange(begun_, true)) {
      Headers all = headers();
      all.emplace_back("Cache-Control", "no-cache");
      reply_->begin({200, {}, "text/event-stream; charset=utf-8", std::move(all)});
    }
    reply_->write(std::move(bytes));
  }

  void fail(const ApiError& error) {
    if (std::exchange(failed_, true)) return;
    cancel();
    if (begun_) {  // too late for a status
      const std::string_view name = style_ == ApiStyle::kAnthropic ? "event: error\n" : "";
      reply_->write(fmt::format("{}data: {}\n\n", name, error_body(error, style_, id_)));
      return reply_->end();
    }
    Response response = to_response(error, style_, id_);
    for (auto& header : headers()) response.headers.push_back(std::move(header));
    reply_->send(std::move(response));
  }

  void cancel() {
    failed_ = true;
    for (const Answer& answer : answers_)
      if (answer.id != 0 && !answer.over) app_.service.cancel(answer.id);
  }

  Headers headers() const {
    Headers all{{"X-Request-Id", id_}};
    if (style_ == ApiStyle::kAnthropic) all.emplace_back("request-id", id_);
    return all;
  }

  const App& app_;
  const ReplyPtr reply_;
  const std::string principal_, id_;
  const ApiStyle style_;
  const bool stream_;
  std::unique_ptr<AnswerForm> form_;
  const Clock::time_point begin_ = reply_->record().begin;
  std::vector<Answer> answers_;
  size_t running_ = 0, choices_ = 1;
  Usage usage_;
  bool begun_ = false, failed_ = false, constrained_ = false;
};

}  // namespace

ApiResult<void> generate(const App& app, const Call& call, Plan plan, std::unique_ptr<AnswerForm> form) {
  const Limits& limits = app.options.limits;
  const int64_t context = app.info.context_tokens;
  const int64_t most_prompt =
      limits.prompt_tokens > 0 ? std::min<int64_t>(limits.prompt_tokens, context - 1) : context - 1;
  int64_t longest = 0;
  for (const auto& prompt : plan.prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  const auto too_long = [](std::string message) {
    return tl::unexpected(ApiError{.message = std::move(message), .code = "context_length_exceeded"});
  };
  if (longest > most_prompt)
    return too_long(fmt::format("the prompt has {} tokens, and at most {} are taken", longest, most_prompt));
  if (plan.options.max_tokens > 0 && longest + plan.options.max_tokens > context)
    return too_long(fmt::format("{} tokens of prompt and {} of answer are more than the context of {} tokens holds",
                                longest, plan.options.max_tokens, context));
  if (plan.kv)
    for (const auto& prompt : plan.prompts)
      if (const Status allowed = app.service.check(*plan.kv, prompt.size()); !allowed)
        return bad_field("kv", allowed.error().message);
  if (const Status allowed = app.service.check(plan.ranks, plan.kv); !allowed)
    return bad_field("ranks", allowed.error().message);
  if (plan.options.max_tokens < 0 && limits.output_tokens > 0) plan.options.max_tokens = limits.output_tokens;
  auto generation = std::make_shared<Generation>(app, call, plan.stream, std::move(form));
  asio::dispatch(call.reply->strand(), [generation, plan = std::move(plan)] { generation->start(plan); });
  return {};
}

}  // namespace godwit::server
