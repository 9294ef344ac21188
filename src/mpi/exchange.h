// mpi_exchange() with other limits than everybody's.
#pragma once

#include <mpi.h>

#include <memory>

#include "mpi/limits.h"
#include "treadle/exchange.h"

namespace treadle::mpi {

std::shared_ptr<Exchange> exchange(MPI_Comm ranks, const Limits& limits);

}  // namespace treadle::mpi
