// What goes wrong between ranks, one kind per run: test_mpi_misuse KIND. Those that end the job are
// looked at from outside (job_ends.cmake); the others exit with 0 if all is as it should be.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "distributed/channel.h"
#include "mpi/exchange.h"
#include "treadle/error.h"
#include "treadle/mpi.h"

namespace treadle {
namespace {

using namespace std::chrono_literals;

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

bool is_as_expected(const std::string& seen, const std::string& expected) {
  if (seen == expected) return true;
  std::fprintf(stderr, "seen:     %s\nexpected: %s\n", seen.c_str(), expected.c_str());
  return false;
}

void make_exchange() { (void)mpi_exchange(MPI_COMM_WORLD); }

// Before MPI_Init, with too low a level in another thread and in this one, after MPI_Finalize.
int states() {
  const std::string rule =
      "all ranks need MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE from MPI_Init_thread, since "
      "messages are moved by any thread, one at a time";
  bool good =
      is_as_expected(thrown_by(make_exchange),
                     "mpi_exchange: MPI is not initialised; it comes after MPI_Init_thread with "
                     "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  if (level == MPI_THREAD_FUNNELED) {
    std::string elsewhere;
    std::thread([&] { elsewhere = thrown_by(make_exchange); }).join();
    good &= is_as_expected(elsewhere,
                           "mpi_exchange: it is called by another thread than MPI_Init_thread and "
                           "MPI gives MPI_THREAD_FUNNELED; " +
                               rule);
    good &= is_as_expected(thrown_by(make_exchange),
                           "mpi_exchange: rank 0 has MPI_THREAD_FUNNELED; " + rule);
  } else {
    std::fprintf(stderr, "MPI gives level %d in place of MPI_THREAD_FUNNELED\n", level);
    good = false;
  }
  MPI_Finalize();
  good &= is_as_expected(thrown_by(make_exchange),
                         "mpi_exchange: MPI is finalised; it comes before MPI_Finalize");
  return good ? 0 : 1;
}

void init() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
}

// The last rank has no threads; all ranks say so.
int one_level() {
  const char* open_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* mpich = std::getenv("PMI_RANK");
  const std::string rank = open_mpi != nullptr ? open_mpi : mpich != nullptr ? mpich : "";
  if (rank == "1") {
    MPI_Init(nullptr, nullptr);
  } else {
    init();
  }
  const std::string thrown = thrown_by(make_exchange);
  const bool good =
      thrown.starts_with("mpi_exchange: rank 1 has MPI_THREAD_SINGLE; all ranks need ");
  if (!good) std::fprintf(stderr, "rank %s threw %s\n", rank.c_str(), thrown.c_str());
  MPI_Finalize();
  return good ? 0 : 1;
}

// An exchange, and transfers in all stages, that end after MPI_Finalize.
int ends_late() {
  init();
  auto exchange = mpi_exchange(MPI_COMM_WORLD);
  std::vector<std::byte> bytes(8), in(8), all(8 * static_cast<std::size_t>(exchange->ranks()));
  const int other = 1 - exchange->rank();
  const Exchange::Receive receive{other, in};
  const Exchange::Send send{other, bytes};
  auto both = exchange->start({&send, 1}, {&receive, 1});
  auto gather = exchange->start_gather(bytes, all);
  std::vector<std::size_t> arrived;
  while (!both->test(arrived) || !gather->test(arrived)) {
  }
  auto open = exchange->start({}, {&receive, 1});
  MPI_Finalize();
  const std::string text =
      "exchange: rank " + std::to_string(exchange->rank()) + " is used after MPI_Finalize";
  bool good = is_as_expected(thrown_by([&] { open->test(arrived); }), text);
  good &= is_as_expected(thrown_by([&] { (void)exchange->start({&send, 1}, {}); }), text);
  good &= is_as_expected(thrown_by([&] { (void)exchange->start_gather(bytes, all); }), text);
  exchange->abandon("nobody hears this any more");
  return good ? 0 : 1;
}

std::shared_ptr<Exchange> begin() {
  init();
  auto exchange = mpi_exchange(MPI_COMM_WORLD);
  distributed::Channel(exchange, 10s).gather(exchange->rank(), "begin");
  return exchange;
}

// The other ranks wait for rank 1 in a gather.
int silent() {
  const auto exchange = begin();
  if (exchange->rank() == 1) std::this_thread::sleep_for(60s);
  distributed::Channel(exchange, 300ms).gather(exchange->rank(), "forward");
  return 0;
}

// The same in messages, large ones among them.
int silent_sender() {
  const auto exchange = begin();
  if (exchange->rank() == 1) std::this_thread::sleep_for(60s);
  distributed::Channel channel(exchange, 300ms);
  distributed::Mail mail(channel, "backward");
  mail.sends.push_back({1, distributed::Buffer(1'000'000)});
  mail.receives.push_back({1, distributed::Buffer(1'000'000)});
  mail.start();
  mail.finish();
  return 0;
}

int killed() {
  const auto exchange = begin();
  if (exchange->rank() == 1) raise(SIGKILL);
  distributed::Channel(exchange, 60s).gather(exchange->rank(), "forward");
  return 0;
}

int abandoned() {
  const auto exchange = begin();
  if (exchange->rank() == 1) exchange->abandon("the disk is full");
  std::this_thread::sleep_for(60s);
  return 0;
}

// MPI reads a send that has ended, and its receiver does not come.
int not_taken() {
  init();
  const auto exchange = mpi::exchange(MPI_COMM_WORLD, {.copied = 100, .let_go = 300ms});
  if (exchange->rank() == 1) std::this_thread::sleep_for(60s);
  const std::vector<std::byte> bytes(1'000'000);
  const Exchange::Send send{1, bytes};
  exchange->start({&send, 1}, {}).reset();
  return 0;
}

}  // namespace

int run(const std::string& kind) {
  const std::map<std::string, int (*)()> kinds = {
      {"states", states},       {"one_level", one_level},         {"ends_late", ends_late},
      {"silent", silent},       {"silent_sender", silent_sender}, {"killed", killed},
      {"abandoned", abandoned}, {"not_taken", not_taken}};
  const auto found = kinds.find(kind);
  if (found != kinds.end()) return found->second();
  std::fprintf(stderr, "there is no kind '%s'\n", kind.c_str());
  return 2;
}

}  // namespace treadle

int main(int argc, char** argv) {
  alarm(30);  // should a job not end
  try {
    return treadle::run(argc == 2 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
