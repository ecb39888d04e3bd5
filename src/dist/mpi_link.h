// Ranks that Open MPI's mpirun started. The library is looked for at run time, when a process finds itself to be one of
// several: a build needs its header only, and nothing changes for who does not use it.
#pragma once

#include "dist/link.h"

namespace godwit::dist {

struct MpiOptions {
  bool progress_thread = false;  // pushes messages on while this process computes; needs a core to spare
};

// How many processes mpirun started, and how many of them on this host; 1 without mpirun.
int mpi_size();
int mpi_local_size();

// The link of this process, to be asked for once. It says goodbye to MPI when it ends.
Result<std::unique_ptr<Link>> make_mpi_link(const MpiOptions& options = {});

}  // namespace godwit::dist
