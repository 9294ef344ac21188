// One call on several ranks: each has some of the tokens, computes an equal share of forward and backward, and gets the
// bits that one rank would get.
//
//   mpirun -n 4 build/release/examples/example_several_ranks            65536 tokens
//   mpirun -n 4 build/release/examples/example_several_ranks 262144
//
// Rank 0 then makes the whole call alone and compares what all ranks have found. Exits with 1 if a bit differs.
#include <mpi.h>
#include <treadle/distributed.h>
#include <treadle/mpi.h>
#include <treadle/treadle.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace treadle;
namespace td = treadle::distributed;

namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t key_heads = 2;
constexpr std::int64_t dim = 64;

enum Which : std::uint64_t { q, k, v, dout };

// Numbers that depend on their place in the whole sequence alone, so that no rank needs more than its rows.
Tensor rows_of(Which which, std::int64_t of_heads, std::int64_t begin, std::int64_t end) {
  Tensor tensor(DType::f32, {1, of_heads, end - begin, dim});
  auto to = tensor.data<float>().begin();
  for (std::int64_t head = 0; head < of_heads; ++head) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t d = 0; d < dim; ++d) {
        std::uint64_t x = ((which * 64 + static_cast<std::uint64_t>(head)) << 40) +
                          static_cast<std::uint64_t>(row * dim + d);
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
        *to++ = static_cast<float>(static_cast<double>(x >> 11) / 9007199254740992.0 * 4 - 2);
      }
    }
  }
  return tensor;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// On rank 0, which has the whole: whether all ranks' rows have its bits.
bool have_bits_of(const Tensor& mine, const Tensor& whole, const td::Shards& rows, int rank) {
  const int count = static_cast<int>(mine.count());
  if (rank != 0) {
    MPI_Send(mine.data<float>().data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    return true;
  }
  bool same = true;
  const std::int64_t of_heads = whole.size(1), length = whole.size(2);
  const std::int64_t numbers = whole.rank() == 4 ? dim : 1;  // of a row
  for (int r = 0; r < rows.ranks(); ++r) {
    std::vector<float> part(static_cast<std::size_t>(of_heads * rows.count(r) * numbers));
    if (r == 0) {
      std::ranges::copy(mine.data<float>(), part.begin());
    } else {
      MPI_Recv(part.data(), static_cast<int>(part.size()), MPI_FLOAT, r, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    }
    const auto bytes = static_cast<std::size_t>(rows.count(r) * numbers) * sizeof(float);
    for (std::int64_t head = 0; bytes > 0 && head < of_heads; ++head) {
      const float* expected =
          whole.data<float>().data() + (head * length + rows.begin(r)) * numbers;
      const float* found = part.data() + head * rows.count(r) * numbers;
      same = same && std::memcmp(found, expected, bytes) == 0;
    }
  }
  return same;
}

// The largest of all ranks' numbers.
double most(double own) {
  double all = own;
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

double most(std::int64_t own) { return most(static_cast<double>(own)); }

bool run(std::int64_t length) {
  const auto ranks = mpi_exchange(MPI_COMM_WORLD);
  const int rank = ranks->rank();

  Options options;
  // The 1024 tokens before, and every 4096th token of all.
  options.mask = [](Index, Index, Index at, Index key) {
    return at >= key && (at - key < 1024 || key % 4096 == 0);
  };
  const Attention attend = compile(options);
  Call call{.executor = serial_executor(), .lse = true};  // one thread for each rank

  // My rows of the sequence.
  const td::Shards rows = td::Shards::even(length, ranks->ranks());
  const std::int64_t begin = rows.begin(rank), end = rows.end(rank);
  const Tensor my_q = rows_of(q, heads, begin, end), my_k = rows_of(k, key_heads, begin, end),
               my_v = rows_of(v, key_heads, begin, end), my_dout = rows_of(dout, heads, begin, end);

  auto start = std::chrono::steady_clock::now();
  const TensorSpec of_q(DType::f32, {1, heads, length, dim});
  const TensorSpec of_k(DType::f32, {1, key_heads, length, dim});
  const td::Plan plan = td::plan(attend, ranks, of_q, of_k, of_k, rows, rows, call);
  const double to_plan = most(seconds_since(start));

  // Twice, as layers of a model would: the first time kernels are compiled.
  Forward y;
  Backward g;
  double forward = 0, backward = 0;
  for (int layer = 0; layer < 2; ++layer) {
    start = std::chrono::steady_clock::now();
    y = td::forward(attend, plan, {my_q, my_k, my_v}, call);
    forward = most(seconds_since(start));
    start = std::chrono::steady_clock::now();
    g = td::backward(attend, plan, {my_q, my_k, my_v}, {y.out, y.lse}, my_dout, std::nullopt, call);
    backward = most(seconds_since(start));
  }

  const td::Traffic there = plan.forward_traffic(), back = plan.backward_traffic();
  const double received = most(there.received), all_gather = most(plan.bytes_of_all_gather()),
               messages = most(there.messages), received_back = most(back.received),
               messages_back = most(back.messages);
  if (rank == 0) {
    std::printf("%d ranks, %lld tokens, balance %.3f, planned in %.3f s\n", rows.ranks(),
                static_cast<long long>(length), plan.balance(), to_plan);
    std::printf("forward   %6.2f s   at most %6.2f MB in %2.0f messages, %.3f of an all-gather\n",
                forward, received / 1e6, messages, all_gather > 0 ? received / all_gather : 0);
    std::printf("backward  %6.2f s   at most %6.2f MB in %2.0f messages\n", backward,
                received_back / 1e6, messages_back);
    std::fflush(stdout);
  }

  // The same on one rank.
  Forward whole;
  Backward gradients;
  if (rank == 0) {
    const Tensor all_q = rows_of(q, heads, 0, length), all_k = rows_of(k, key_heads, 0, length),
                 all_v = rows_of(v, key_heads, 0, length),
                 all_dout = rows_of(dout, heads, 0, length);
    start = std::chrono::steady_clock::now();
    whole = attend.forward({all_q, all_k, all_v}, call);
    const double alone = seconds_since(start);
    start = std::chrono::steady_clock::now();
    gradients = attend.backward({all_q, all_k, all_v}, {whole.out, whole.lse}, all_dout,
                                std::nullopt, call);
    std::printf("one rank  %6.2f s   forward, %.2f s backward\n", alone, seconds_since(start));
  }
  bool same = have_bits_of(y.out, whole.out, rows, rank);
  same = have_bits_of(y.lse, whole.lse, rows, rank) && same;
  same = have_bits_of(g.dq, gradients.dq, rows, rank) && same;
  same = have_bits_of(g.dk, gradients.dk, rows, rank) && same;
  same = have_bits_of(g.dv, gradients.dv, rows, rank) && same;
  if (rank == 0)
    std::printf("out, lse, dq, dk and dv of all ranks %s those of one rank, bit for bit\n",
                same ? "are" : "ARE NOT");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  const bool same = run(argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 65536);
  MPI_Finalize();
  return same ? 0 : 1;
}
