// The verbs of the command line. Each file adds its verb to the program and leaves in `run` what to do when it is
// chosen.
#pragma once

#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include <godwit/ranks.h>
#include <godwit/status.h>

namespace godwit::cli {

struct Program {
  CLI::App app;
  std::function<Status()> run;  // of the verb on the command line
  bool json = false;            // results as JSON on stdout
};

void add_run(Program& program);
void add_chat(Program& program);
void add_serve(Program& program);
void add_bench(Program& program);
void add_bench_ring(Program& program, CLI::App& bench);
void add_bench_serve(Program& program, CLI::App& bench);
void add_eval(Program& program);
void add_sweep(Program& program, CLI::App& eval);
void add_plan(Program& program);
void add_inspect(Program& program);
void add_tokenize(Program& program);
void add_quantize(Program& program);
void add_tune(Program& program);
void add_tune_bits(Program& program, CLI::App& tune);
void add_tune_codecs(Program& program, CLI::App& tune);
void add_methods(Program& program);

// The job that mpirun started this process in, or null; main() joins it and leaves it.
std::shared_ptr<Ranks>& job_ranks();

// A verb with the options all verbs have.
CLI::App* add_verb(Program& program, const char* name, const char* description);

}  // namespace godwit::cli
