// POST /v1/embeddings
#include <openssl/evp.h>

#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

std::string base64(const std::vector<float>& values) {
  const auto bytes = static_cast<int>(values.size() * sizeof(float));
  std::string text(static_cast<size_t>((bytes + 2) / 3 * 4) + 1, '\0');  // EVP_EncodeBlock ends it with a NUL
  text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                  reinterpret_cast<const unsigned char*>(values.data()), bytes)));
  return text;
}

class EmbeddingForm final : public AnswerForm {
 public:
  EmbeddingForm(const App& app, size_t count, bool coded)
      : coded_(coded), data_(count), body_{{"object", "list"}, {"data", Json::array()}, {"model", app.names.front()}} {}

  std::string piece(size_t, const Piece&) override { return {}; }
  std::string answer_end(size_t i, const ServiceAnswer& end) override {
    data_[i] = {{"object", "embedding"}, {"index", i}};
    data_[i]["embedding"] = coded_ ? Json(base64(end.embedding)) : Json(end.embedding);
    return {};
  }
  std::string end(const Usage& usage) override {
    for (Json& one : data_) body_["data"].push_back(std::move(one));
    body_["usage"] = {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}};
    return json_text(body_);
  }

 private:
  const bool coded_;
  std::vector<Json> data_;
  Json body_;
};

}  // namespace

ApiResult<void> embeddings(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  std::string format = "float";
  GODWIT_TRY(fields.read("encoding_format", format));
  if (format != "float" && format != "base64")
    return bad_field("encoding_format", "'encoding_format' must be float or base64");
  GODWIT_TRY(fields.refuse("dimensions", "embeddings have the model's own length"));
  Plan plan;
  plan.embed = true;
  plan.options.max_tokens = 1;
  GODWIT_TRY(read_prompts(app, fields, "input", plan));
  auto form = std::make_unique<EmbeddingForm>(app, plan.prompts.size(), format == "base64");
  return generate(app, call, std::move(plan), std::move(form));
}

}  // namespace godwit::server
