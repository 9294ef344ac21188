// The dynamic linker lists what is loaded; among the notes of the one that holds this function is
// the id.
#include "jit/build_id.h"

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace treadle::jit {
namespace {

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// Each note: three words, then its owner and its content, both padded.
std::string find_id(std::string_view notes) {
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t content = sizeof note + padded(note.n_namesz);
    if (content + note.n_descsz > notes.size()) break;
    const std::string_view owner = notes.substr(sizeof note, note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && owner == std::string_view("GNU\0", 4)) {
      return std::string(notes.substr(content, note.n_descsz));
    }
    notes.remove_prefix(std::min(content + padded(note.n_descsz), notes.size()));
  }
  return {};
}

int visit(dl_phdr_info* loaded, std::size_t /*size*/, void* found) {
  const auto here = reinterpret_cast<std::uintptr_t>(&build_id);
  bool ours = false;
  std::string id;
  for (int i = 0; i < loaded->dlpi_phnum; ++i) {
    const auto& segment = loaded->dlpi_phdr[i];
    const std::uintptr_t begin = loaded->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && here - begin < segment.p_memsz) ours = true;
    if (segment.p_type == PT_NOTE && id.empty()) {
      const auto* notes = reinterpret_cast<const char*>(begin);  // NOLINT: it comes as an integer
      id = find_id({notes, segment.p_memsz});
    }
  }
  if (ours) *static_cast<std::string*>(found) = id;
  return ours ? 1 : 0;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(visit, &id);
  return id;
}

}  // namespace treadle::jit
