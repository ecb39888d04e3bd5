// The page at /: files of src/server/page/, compiled in. It asks nobody but this server, and its policy tells the
// browser to hold it to that.
#pragma once

#include "server/http.h"

namespace godwit::server {

// REQUIRES: the path is /, /page.css or /page.js.
Response page_response(const Request& request);

}  // namespace godwit::server
