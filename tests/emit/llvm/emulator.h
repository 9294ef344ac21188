// Calling a kernel that was made for aarch64, in an emulator.
//
//   const Emulator run(object);          // ELF, with a function void mod(void*)
//   run({{arguments, true}, {q}, {out}});
//
// The memory goes over and comes back; the first piece is what the function gets.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace treadle::test {

class Emulator {
 public:
  struct Piece {
    std::span<std::byte> memory;
    bool pointers = false;  // words that may be addresses inside the other pieces
  };

  // Are the compiler, the linker and the emulator here?
  static bool is_here();

  explicit Emulator(const std::string& object);
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;
  ~Emulator();

  // Throws if the program does not end well.
  void operator()(const std::vector<Piece>& pieces) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace treadle::test
