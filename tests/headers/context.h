// The names that examples in public headers take for granted. Each example is the body of a member function of a
// class derived from this one (tools/check_examples.py), so it may declare any of them again.
#pragma once

#include <dlpack/dlpack.h>
#include <treadle/distributed.h>
#include <treadle/dlpack.h>
#include <treadle/in_process_exchange.h>
#include <treadle/treadle.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

namespace treadle::test {

// What <mpi.h> and treadle/mpi.h declare, where there is no MPI.
using MPI_Comm = int;
inline MPI_Comm MPI_COMM_WORLD = 0;
std::shared_ptr<Exchange> mpi_exchange(MPI_Comm);

struct Context {
  // A call.
  Tensor q, k, v, dout;
  Tensor near_k, near_v, far_k, far_v;  // keys in two parts
  Tensor last, cached_k, cached_v;      // the next token, and all up to it
  Options options;
  Attention causal = compile(options);

  std::int64_t length = 64;  // of a sequence that several ranks share

  // What mods read.
  std::int64_t heads = 8;
  std::vector<float> data;
  Capture slopes{"slopes", View(data.data(), {heads})};
  Tensor table;

  // Blocks that are there, as [query blocks, key blocks].
  Tensor present;

  // Somebody else's.
  DLManagedTensor* managed = nullptr;
  Tensor result;
  std::vector<float> out;
  float f(std::int64_t i);
};

}  // namespace treadle::test
