#include "dist/mpi_link.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include <dlfcn.h>
#include <mpi.h>

#include "base/check.h"

namespace godwit::dist {
namespace {

constexpr int kTag = 7;
constexpr const char* kLibrary = "libmpi.so.40";  // the ABI of Open MPI 4 and 5

// What we call of MPI. MPI_COMM_WORLD and its like are addresses of the library's variables.
struct Mpi {
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Irecv) irecv;
  decltype(&MPI_Test) test;
  decltype(&MPI_Iprobe) iprobe;
  decltype(&MPI_Get_count) get_count;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Abort) abort;
  MPI_Comm world;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;

  static Result<Mpi> load() {
    // Global, because its plug-ins look for its symbols.
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr)
      return errorf(ErrorCode::kNotFound,
                    "mpirun started this process, but {} cannot be loaded ({}); install Open MPI 4 or 5 on this host",
                    kLibrary, dlerror());
    Mpi mpi;
    const char* missing = nullptr;
    auto find = [&](auto& to, const char* name) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
      if (to == nullptr) missing = name;
    };
    find(mpi.init_thread, "MPI_Init_thread");
    find(mpi.finalize, "MPI_Finalize");
    find(mpi.comm_rank, "MPI_Comm_rank");
    find(mpi.comm_size, "MPI_Comm_size");
    find(mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
    find(mpi.isend, "MPI_Isend");
    find(mpi.irecv, "MPI_Irecv");
    find(mpi.test, "MPI_Test");
    find(mpi.iprobe, "MPI_Iprobe");
    find(mpi.get_count, "MPI_Get_count");
    find(mpi.error_string, "MPI_Error_string");
    find(mpi.abort, "MPI_Abort");
    find(mpi.world, "ompi_mpi_comm_world");
    find(mpi.byte, "ompi_mpi_byte");
    find(mpi.errors_return, "ompi_mpi_errors_return");
    if (missing != nullptr)
      return errorf(ErrorCode::kNotFound, "{} has no {}; install Open MPI 4 or 5", kLibrary, missing);
    return mpi;
  }
};

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::max(otherwise, std::atoi(text));
}

class MpiLink final : public Link {
 public:
  MpiLink(const Mpi& mpi, int rank, int size, bool progress_thread) : mpi_(mpi), rank_(rank), size_(size) {
    if (progress_thread) pusher_ = std::jthread([this](const std::stop_token& stop) { push(stop); });
  }
  ~MpiLink() override {
    if (pusher_.joinable()) {
      pusher_.request_stop();
      pusher_.join();
    }
    // Without this word, mpirun ends the job with the process.
    if (!failed_) mpi_.finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return pusher_.joinable() ? "mpi, progress thread" : "mpi"; }

  Ticket send(int to, std::span<const std::byte> message) override {
    std::lock_guard lock(mutex_);
    Request& request = requests_[++last_];
    request.code =
        mpi_.isend(message.data(), count_of(message.size()), mpi_.byte, to, kTag, mpi_.world, &request.handle);
    return last_;
  }
  Ticket receive(int from, std::span<std::byte> memory) override {
    std::lock_guard lock(mutex_);
    Request& request = requests_[++last_];
    request.code =
        mpi_.irecv(memory.data(), count_of(memory.size()), mpi_.byte, from, kTag, mpi_.world, &request.handle);
    return last_;
  }
  Result<std::optional<size_t>> done(Ticket ticket) override {
    std::lock_guard lock(mutex_);
    const auto at = requests_.find(ticket);
    GODWIT_CHECK(at != requests_.end());
    int through = 0, count = 0;
    MPI_Status status = {};
    int code = at->second.code;
    if (code == MPI_SUCCESS) code = mpi_.test(&at->second.handle, &through, &status);
    if (code != MPI_SUCCESS) {
      failed_ = true;
      char text[MPI_MAX_ERROR_STRING] = {};
      int length = 0;
      mpi_.error_string(code, text, &length);
      return errorf(ErrorCode::kIo, "{}", std::string_view(text, static_cast<size_t>(length)));
    }
    if (through == 0) return std::optional<size_t>();
    mpi_.get_count(&status, mpi_.byte, &count);
    requests_.erase(at);
    return std::optional<size_t>(static_cast<size_t>(count));
  }
  void poll() override {
    std::lock_guard lock(mutex_);
    if (failed_) return;
    int flag = 0;
    mpi_.iprobe(MPI_ANY_SOURCE, kTag, mpi_.world, &flag, MPI_STATUS_IGNORE);
  }
  void give_up() override {
    std::lock_guard lock(mutex_);
    failed_ = true;
  }
  void abort(int code) override {
    failed_ = true;
    mpi_.abort(mpi_.world, code);
  }
  // mpirun --enable-recovery; otherwise mpirun ends the others.
  bool outlives_ranks() const override { return number_of("OMPI_MCA_orte_enable_recovery", 0) > 0; }

 private:
  struct Request {
    MPI_Request handle = nullptr;
    int code = MPI_SUCCESS;
  };
  static int count_of(size_t bytes) {
    GODWIT_CHECK(bytes <= INT32_MAX, "a message of {} bytes", bytes);
    return static_cast<int>(bytes);
  }
  void push(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      poll();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  const Mpi mpi_;
  const int rank_, size_;
  std::mutex mutex_;  // of MPI: initialised for one thread at a time
  std::map<Ticket, Request> requests_;
  Ticket last_ = 0;
  std::atomic<bool> failed_ = false;
  std::jthread pusher_;
};

}  // namespace

int mpi_size() {
  return number_of("OMPI_COMM_WORLD_SIZE", 1);
}

int mpi_local_size() {
  return number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
}

Result<std::unique_ptr<Link>> make_mpi_link(const MpiOptions& options) {
  GODWIT_ASSIGN(const Mpi mpi, Mpi::load());
  int provided = 0, rank = 0, size = 1;
  if (mpi.init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    return errorf(ErrorCode::kIo, "MPI does not start");
  if (provided < MPI_THREAD_SERIALIZED)
    return errorf(ErrorCode::kUnsupported, "this MPI was built without threads; install one with");
  mpi.comm_set_errhandler(mpi.world, mpi.errors_return);
  mpi.comm_rank(mpi.world, &rank);
  mpi.comm_size(mpi.world, &size);
  return std::make_unique<MpiLink>(mpi, rank, size, options.progress_thread);
}

}  // namespace godwit::dist
