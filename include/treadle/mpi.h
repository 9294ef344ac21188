// The ranks of an MPI program as an Exchange. In a library of its own, libtreadle_mpi:
// find_package(treadle COMPONENTS mpi) has it as treadle::mpi; libtreadle.so knows no MPI.
//
//   std::shared_ptr<Exchange> mpi = mpi_exchange(MPI_COMM_WORLD);
//
// All ranks of the communicator call mpi_exchange. The exchange duplicates the communicator, so that
// its messages never meet those of the program, and frees it when the last of the exchange, its
// transfers and what holds them ends; after MPI_Finalize there is nothing left to free.
//
// MPI_Init_thread must have given all ranks MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE: messages
// are moved on by whichever thread waits, one at a time. With MPI_THREAD_SERIALIZED the program
// makes no MPI calls of its own while a distributed call runs.
//
// What MPI reports as an error is an Error that names the rank and MPI's function. Messages may have
// any size; one of another size than its receive is received whole and then an error.
//
// MPI cannot take back a message that has begun. A Transfer that ends early leaves receives without
// memory, whose messages are thrown away when they come, and small sends, which were copied. What is
// left is memory that MPI reads or writes just then: for that it waits until the other rank has
// taken, or sent, what was begun. If that takes more than a minute the job ends as by abandon(),
// which prints its reason on stderr and calls MPI_Abort.
#pragma once

#include <mpi.h>

#include <memory>

#include "treadle/api.h"
#include "treadle/exchange.h"

namespace treadle {

// All ranks of the communicator call it.
TREADLE_API std::shared_ptr<Exchange> mpi_exchange(MPI_Comm ranks);

}  // namespace treadle
