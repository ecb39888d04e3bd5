// POST /v1/embeddings
#include "server/app.h"

namespace godwit::server {

ApiResult<void> embeddings(const App&, const Call&) {
  return tl::unexpected(ApiError{.status = 501, .message = "embeddings are not served", .code = "unsupported"});
}

}  // namespace godwit::server
