#include "emulator.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace treadle::test {
namespace {

// The image ends with the places of its pointers, which count from its beginning, and their number.
constexpr const char* program = R"(
asm(".data\n.balign 4096\nimage: .incbin \"image\"\nimage_end:\n.globl image, image_end\n.text");
extern char image[], image_end[];
void mod(void*);
static void call(long number, long a, long b, long c) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
}
void _start(void) {
  long* last = (long*)image_end - 1;
  for (long i = 1; i <= *last; ++i) *(long*)(image + last[-i]) += (long)image;
  mod(image);
  call(64, 1, (long)image, image_end - image);
  call(93, 0, 0, 0);
}
)";

bool runs(const std::string& command) { return std::system(command.c_str()) == 0; }

}  // namespace

bool Emulator::is_here() {
  return runs(
      "for p in clang-19 ld.lld-19 qemu-aarch64; do command -v $p || exit 1; done >/dev/null");
}

Emulator::Emulator(const std::string& object) {
  static int number = 0;
  folder_ = std::filesystem::temp_directory_path() /
            ("treadle-mod-" + std::to_string(getpid()) + "-" + std::to_string(number++));
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "mod.o", std::ios::binary) << object;
  std::ofstream(folder_ / "main.c") << program;
}

Emulator::~Emulator() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Emulator::operator()(const std::vector<Piece>& pieces) const {
  std::vector<std::byte> image;
  std::vector<std::size_t> begins;
  for (const Piece& piece : pieces) {
    image.resize((image.size() + 63) / 64 * 64);
    begins.push_back(image.size());
    image.insert(image.end(), piece.memory.begin(), piece.memory.end());
  }
  image.resize((image.size() + 63) / 64 * 64);
  std::vector<std::int64_t> places;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (!pieces[p].pointers) continue;
    for (std::size_t at = begins[p]; at < begins[p] + pieces[p].memory.size(); at += 8) {
      std::uintptr_t word = 0;
      std::memcpy(&word, &image[at], 8);
      for (std::size_t to = 0; to < pieces.size(); ++to) {
        const auto begin = reinterpret_cast<std::uintptr_t>(pieces[to].memory.data());
        if (word < begin || word >= begin + pieces[to].memory.size()) continue;
        const std::uintptr_t place = word - begin + begins[to];
        std::memcpy(&image[at], &place, 8);
        places.push_back(static_cast<std::int64_t>(at));
        break;
      }
    }
  }
  places.push_back(static_cast<std::int64_t>(places.size()));
  const std::size_t size = image.size();
  image.resize(size + places.size() * 8);
  std::memcpy(&image[size], places.data(), places.size() * 8);
  std::ofstream(folder_ / "image", std::ios::binary)
      .write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));

  const std::string build =
      "cd " + folder_.string() +
      " && clang-19 --target=aarch64-linux-gnu -O1 -ffreestanding -fno-builtin -nostdlib -static "
      "-fuse-ld=lld-19 main.c mod.o -o program && qemu-aarch64 ./program > result";
  if (!runs(build)) throw std::runtime_error("failed: " + build);
  std::ifstream result(folder_ / "result", std::ios::binary);
  const std::vector<char> back{std::istreambuf_iterator<char>(result), {}};
  if (back.size() != image.size()) throw std::runtime_error("the emulated program gave too little");
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].pointers || pieces[p].memory.empty()) continue;
    std::memcpy(pieces[p].memory.data(), &back[begins[p]], pieces[p].memory.size());
  }
}

}  // namespace treadle::test
