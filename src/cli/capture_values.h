// Captures with values on a command line.
//
//   --capture window:i64=128               one number
//   --capture ids:i32=0*512,1*512          a list: 512 times 0, 512 times 1
//   --capture table:f32:2x3=1,2,3,4,5,6    any shape, the last axis fastest
//   --capture ids:i32=@ids.txt             the numbers of a file
#pragma once

#include <string>
#include <vector>

#include "treadle/capture.h"

namespace treadle::cli {

// Captures that own their memory. Throws treadle::Error for what cannot be read; the message begins
// with the name of the command.
std::vector<Capture> captures_with_values(const std::string& command,
                                          const std::vector<std::string>& texts);

// The same for some, and for those that are name:dtype:rank what captures_from() returns.
std::vector<Capture> captures_perhaps_with_values(const std::string& command,
                                                  const std::vector<std::string>& texts);

}  // namespace treadle::cli
