// Rows of captures collected. Read whole() first.
#include "distributed/sharded_captures.h"

#include <algorithm>
#include <cstring>

#include "api/check.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/call_facts.h"

namespace treadle::distributed {
namespace {

const Shards& shards_of(const Plan::Held& held, const ShardedCapture& sharded) {
  return sharded.like == ShardedCapture::Like::queries ? held.queries : held.keys;
}

const ShardedCapture* find(const Plan::Held& held, std::string_view name) {
  const auto& all = held.options.sharded;
  const auto at = std::ranges::find(all, name, &ShardedCapture::name);
  return at == all.end() ? nullptr : &*at;
}

// This rank's rows as they travel: contiguous.
std::vector<std::byte> own_bytes(const Plan::Held& held, std::string_view call,
                                 const ShardedCapture& sharded, const ConstView& given) {
  const std::int64_t rows = shards_of(held, sharded).count(held.rank());
  if (sharded.axis >= given.rank() || given.size(sharded.axis) != rows) {
    base::fail("{}: {} is {}; it is sharded along axis {}, of which this rank has {}", call,
               sharded.name, to_string(given.shape()), sharded.axis, rows);
  }
  const Tensor same = base::convert(given, given.dtype());
  const auto* data = static_cast<const std::byte*>(same.view().data());
  return {data, data + static_cast<std::size_t>(same.count()) * size_of(same.dtype())};
}

// What must be the same on all ranks.
void add_shape(base::Hasher& what, const ShardedCapture& sharded, const ConstView& given) {
  what.add(sharded.name).add(given.dtype());
  for (int axis = 0; axis < given.rank(); ++axis)
    if (axis != sharded.axis) what.add(given.size(axis));
}

// Rows of all ranks along the axis.
Tensor whole(const Plan::Held& held, std::string_view call, const ShardedCapture& sharded,
             const ConstView& own, const std::vector<std::vector<std::byte>>& parts) {
  const Shards& shards = shards_of(held, sharded);
  Dims shape = own.shape();
  const auto axis = static_cast<std::size_t>(sharded.axis);
  shape[axis] = shards.length();
  Tensor all(own.dtype(), shape);
  std::int64_t outer = 1, inner = static_cast<std::int64_t>(size_of(own.dtype()));
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  auto* to = static_cast<std::byte*>(all.view().data());
  for (int r = 0; r < shards.ranks(); ++r) {
    const std::vector<std::byte>& part = parts[static_cast<std::size_t>(r)];
    const std::int64_t bytes = shards.count(r) * inner;
    if (std::ssize(part) != outer * bytes)
      base::internal_error("{}: rank {} has {} bytes of {} for {}", call, r, part.size(),
                           sharded.name, outer * bytes);
    for (std::int64_t o = 0; o < outer && bytes > 0; ++o)
      std::memcpy(to + (o * shards.length() + shards.begin(r)) * inner, part.data() + o * bytes,
                  static_cast<std::size_t>(bytes));
  }
  return all;
}

}  // namespace

void check_sharded(const std::vector<ShardedCapture>& sharded) {
  for (std::size_t i = 0; i < sharded.size(); ++i) {
    if (sharded[i].axis < 0)
      base::fail("plan: {} is sharded along axis {}; axes count from 0", sharded[i].name,
                 sharded[i].axis);
    for (std::size_t j = 0; j < i; ++j)
      if (sharded[i].name == sharded[j].name)
        base::fail("plan: {} is sharded twice; each capture has one axis", sharded[i].name);
  }
}

GatheredCaptures::GatheredCaptures(Plan::Held& held, Envelope::Kind kind,
                                   const Attention::Compiled& compiled, const Call& call)
    : call_(call) {
  if (held.options.sharded.empty()) return;
  const std::string_view name = name_of(kind);
  std::vector<const Capture*> bound;
  std::vector<std::vector<std::byte>> own;
  std::vector<const ShardedCapture*> sharded;
  std::vector<const Capture*> captures;
  Failure failure;
  try {
    bound = api::bind(name, compiled.captures, call.captures);
    for (const Capture* capture : bound) {
      if (const ShardedCapture* one = find(held, capture->name())) {
        sharded.push_back(one);
        captures.push_back(capture);
        own.push_back(own_bytes(held, name, *one, capture->view()));
      }
    }
  } catch (...) {
    failure = Failure::current();
  }
  Envelope begun = begin_call(held, kind, nullptr, failure);
  base::Hasher what;
  for (std::size_t i = 0; i < own.size(); ++i) add_shape(what, *sharded[i], captures[i]->view());
  begun.what = what.finish().low;
  const std::vector<Envelope> all = held.channel.gather(begun, name);
  if (first_refusing(all) >= 0) throw_failure(held.channel, all, failure);
  check_same_call(held.channel, all);
  if (first_failing(all) >= 0) throw_failure(held.channel, all, failure);
  check_same_contents(held.channel, all);
  std::vector<std::vector<std::vector<std::byte>>> parts;
  for (const std::vector<std::byte>& bytes : own) parts.push_back(held.channel.share(bytes, name));
  std::size_t next = 0;
  for (const Capture* capture : bound) {
    if (find(held, capture->name()) == nullptr) continue;
    whole_.push_back(whole(held, name, *sharded[next], capture->view(), parts[next]));
    ++next;
    std::erase_if(call_.captures, [&](const Capture& c) { return c.name() == capture->name(); });
    call_.captures.emplace_back(capture->name(), ConstView(whole_.back()));
  }
}

ConstView own_slice(const Plan::Held& held, std::string_view name, const ConstView& whole) {
  const ShardedCapture* sharded = find(held, name);
  if (sharded == nullptr) return whole;
  const Shards& shards = shards_of(held, *sharded);
  Dims shape = whole.shape();
  shape[static_cast<std::size_t>(sharded->axis)] = shards.count(held.rank());
  const auto* data = static_cast<const std::byte*>(whole.data());
  if (count_of(shape) > 0)
    data += shards.begin(held.rank()) * whole.stride(sharded->axis) *
            static_cast<std::int64_t>(size_of(whole.dtype()));
  return {data, whole.dtype(), shape, whole.strides()};
}

}  // namespace treadle::distributed
