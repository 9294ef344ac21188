// libFuzzer on files of the cache: whatever is in one, it is read as what a write of the same key
// made, or counts as absent. Sums are made right where the input asks for it, so that what comes
// after them is reached.
//
// An input is a byte of flags, a byte for the length of the key that is asked for, and the file,
// whose header lies as in src/jit/cache_file.cpp.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "jit/cache_file.h"
#include "jit/descriptor.h"
#include "jit/disk_cache.h"
#include "support/temporary_folder.h"

using namespace treadle;

namespace {

constexpr std::size_t begin_of_key_bytes = 16, begin_of_sum = 24, header_bytes = 40;

void put(std::string& file, std::size_t at, const void* value, std::size_t bytes) {
  std::memcpy(file.data() + at, value, bytes);
}

void mend(std::string& file, std::uint8_t flags, std::uint64_t key_bytes) {
  if (file.size() < header_bytes) return;
  const std::string good = jit::cache_file(base::Key(), "");
  if ((flags & 1) != 0) put(file, 0, good.data(), begin_of_key_bytes);  // magic and version
  if ((flags & 2) != 0) put(file, begin_of_key_bytes, &key_bytes, sizeof key_bytes);
  if ((flags & 4) != 0) {
    const std::string_view content = std::string_view(file).substr(header_bytes);
    const base::Hash sum = base::hash_of(std::as_bytes(std::span(content)));
    put(file, begin_of_sum, &sum, sizeof sum);
  }
}

// Through the whole cache, from a file that it trusts.
std::optional<std::string> read_from_disk(const std::string& file, const base::Key& key) {
  static const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/" + jit::cache_file_name(key);
  jit::Descriptor to(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, S_IRUSR | S_IWUSR));
  if (!to.is_open() || !to.write(file.data(), file.size()) || !to.close()) std::abort();
  const jit::DiskCache disk(folder.path());
  std::optional<std::string> object = disk.read(key);
  disk.remove(key);
  return object;
}

void check(const std::string& file, const base::Key& key) {
  const std::optional<std::string> object = jit::cache_file_object(file, key);
  if (object && jit::cache_file(key, *object) != file) std::abort();
  if (read_from_disk(file, key) != object) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint8_t flags = data[0];
  const std::size_t key_bytes = data[1] % 64;
  std::string file(reinterpret_cast<const char*>(data) + 2, size - 2);
  mend(file, flags, key_bytes);
  // The key that the file holds, or one that it does not.
  std::string asked = file.size() > header_bytes ? file.substr(header_bytes, key_bytes) : "";
  if ((flags & 8) != 0) asked += 'x';
  if ((flags & 16) != 0 && !asked.empty()) asked.back() ^= 1;
  check(file, base::Key(asked));

  // What a write of these bytes makes is read again, by its own key alone.
  const base::Key key(file.substr(0, key_bytes));
  const std::string object = file.substr(key.bytes.size());
  const std::string written = jit::cache_file(key, object);
  if (jit::cache_file_object(written, key) != object) std::abort();
  if (jit::cache_file_object(written, base::Key(key.bytes + 'x'))) std::abort();
  std::string other = key.bytes;
  if (!other.empty()) other.back() ^= 1;
  if (other != key.bytes && jit::cache_file_object(written, base::Key(other))) std::abort();
  check(written, key);
  return 0;
}
