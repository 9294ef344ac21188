// Runs the program `treadle` as a user would.
//
//   const Ran ran = run_program({"explain", "score"}, {"TREADLE_DUMP=graph"});
//   ran.exit_code, ran.out, ran.err
#pragma once

#include <string>
#include <vector>

namespace treadle::cli {

struct Ran {
  int exit_code = -1;  // minus the number of the signal that ended it
  std::string out, err;
};

// The environment is ours, without TREADLE_DUMP and with what is given.
Ran run_program(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment = {});

// A file of the golden folder. With TREADLE_TEST_GOLDEN=write it first becomes `now`, to be looked
// at in the diff.
std::string golden(const std::string& name, const std::string& now);

}  // namespace treadle::cli
