// What the program is busy with, on one line of the terminal that is overwritten and gone at the
// end. Silent when stderr is not a terminal.
//
//   Progress progress;
//   progress.show("[2/9] causal: forward");
#pragma once

#include <string_view>

namespace treadle::cli {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::string_view text) const;

 private:
  bool terminal_;
};

}  // namespace treadle::cli
