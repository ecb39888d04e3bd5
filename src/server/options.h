// Settings of a server: plain data. Every limit is hard, and docs/server.md lists what a client sees at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::server {

struct Limits {
  size_t header_bytes = size_t{16} << 10;     // of one request
  size_t body_bytes = size_t{16} << 20;       // of one request
  size_t all_body_bytes = size_t{512} << 20;  // of all requests that arrive or are being prepared
  size_t backlog_bytes = size_t{4} << 20;     // of answers that a client has not read yet
  int connections = 4096;
  int idle_seconds = 75;     // between two requests of a connection
  int request_seconds = 30;  // from the first byte of a request to its last
  int write_seconds = 30;    // in which a client reads nothing of its answer
  int prompt_tokens = 0;     // 0: as many as the context holds
  int output_tokens = 0;     // of one answer; 0: as many as the context holds
  int embeddings = 128;      // texts of one request for embeddings
  int choices = 16;          // answers to one request
};

struct Options {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;                  // 0: any that is free
  int threads = 2;                       // that read, write and format; the engine has its own
  std::vector<std::string> model_names;  // what clients call the model; empty: after its file
  std::string key_file;                  // lines NAME:KEY; empty: everybody may ask
  std::string tls_certificate, tls_key;  // PEM files; empty: plain HTTP
  bool client_priorities = false;        // whether requests may say how urgent they are
  bool tools_in_prompt = false;          // describe tools in the system message where the template takes none
  bool log = true;                       // one line of JSON per request on stderr
  Limits limits;
};

}  // namespace godwit::server
