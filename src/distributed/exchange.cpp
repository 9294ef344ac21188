// Where the tables of virtual functions are.
#include "treadle/exchange.h"

namespace treadle {

Transfer::~Transfer() = default;
Exchange::~Exchange() = default;

}  // namespace treadle
