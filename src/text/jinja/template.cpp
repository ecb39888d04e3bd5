#include "text/jinja/template.h"

#include <exception>
#include <new>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace godwit::jinja {

Result<Template> Template::parse(std::string_view source, std::string_view label, const Limits& limits) {
  try {
    auto ast = std::make_shared<Ast>();
    ast->label = label;
    parse_template(source, limits, *ast);
    return Template(std::move(ast));
  } catch (const Failure& failure) {
    return errorf(failure.code, "chat template {}: {}", label, failure.message);
  } catch (const std::bad_alloc&) {
    return errorf(ErrorCode::kExhausted, "chat template {}: out of memory", label);
  } catch (const std::exception& error) {
    return errorf(ErrorCode::kBadData, "chat template {}: {}", label, error.what());
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  Interpreter interpreter(*ast_, options);
  try {
    return interpreter.run(context);
  } catch (const Failure& failure) {
    return errorf(failure.code, "chat template {}, line {}: {}", ast_->label, interpreter.line(), failure.message);
  } catch (const std::bad_alloc&) {
    return errorf(ErrorCode::kExhausted, "chat template {}, line {}: out of memory", ast_->label, interpreter.line());
  } catch (const std::exception& error) {
    return errorf(ErrorCode::kBadData, "chat template {}, line {}: {}", ast_->label, interpreter.line(), error.what());
  }
}

}  // namespace godwit::jinja
