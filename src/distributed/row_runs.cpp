// Runs of rows found and copied.
#include "distributed/row_runs.h"

#include <algorithm>
#include <cstring>

namespace treadle::distributed {
namespace {

void add(std::vector<RowRun>& runs, const RowRun& run) {
  if (!runs.empty()) {
    RowRun& last = runs.back();
    const std::int64_t apart = run.position - (last.position + (last.count - 1) * last.step);
    const bool goes_on = run.row == last.row + last.count &&
                         (run.count == 1 || last.count == 1 || run.step == last.step) &&
                         (last.count == 1 || apart == last.step) &&
                         (run.count == 1 || apart == run.step) && apart > 0;
    if (goes_on) {
      last.step = apart;
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

// Those of position, position + step, ... that lie in the range.
void add_line(std::vector<RowRun>& runs, const RowRun& line, layout::Range range) {
  const auto first_from = [&](std::int64_t bound) {
    const std::int64_t behind = bound - line.position;
    return std::clamp<std::int64_t>(behind <= 0 ? 0 : (behind + line.step - 1) / line.step, 0,
                                    line.count);
  };
  const std::int64_t begin = first_from(range.begin), end = first_from(range.end);
  if (begin < end)
    add(runs, {line.position + begin * line.step, line.step, end - begin, line.row + begin});
}

// Rows of a head in memory: of `position` at base + (position - first) * stride.
template <class Byte>
struct Rows {
  Byte* base;
  std::int64_t stride, bytes;

  template <class Void>
  Rows(const BasicView<Void>& view, std::int64_t b, std::int64_t h, std::int64_t first) {
    const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
    stride = view.stride(2) * element;
    bytes = (view.rank() == 4 ? view.size(3) : 1) * element;
    base = static_cast<Byte*>(view.data()) + (b * view.stride(0) + h * view.stride(1)) * element -
           first * stride;
  }
};

// So many rows, at any distances.
void copy_run(std::byte* to, std::int64_t to_stride, const std::byte* from,
              std::int64_t from_stride, std::int64_t bytes, std::int64_t count) {
  if (to_stride == bytes && from_stride == bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(count * bytes));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, to += to_stride, from += from_stride)
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

template <class Byte, class Void, class Copy>
void for_each_stretch(const BasicView<Void>& view, std::int64_t first, layout::Range batch,
                      layout::Range heads, const Copy& copy) {
  for (std::int64_t b = batch.begin; b < batch.end; ++b)
    for (std::int64_t h = heads.begin; h < heads.end; ++h) copy(Rows<Byte>(view, b, h, first));
}

}  // namespace

std::vector<RowRun> runs_in(const layout::Tiles& tiles, layout::Range positions) {
  std::vector<RowRun> runs;
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
    const passes::Axis& axis = tiles.axis(tile);
    const std::int64_t row = tiles.row(tile, 0);
    for (std::int64_t outer = 0; outer < axis.outer_count; ++outer) {
      add_line(runs,
               {axis.low + outer * axis.outer_step, std::max<std::int64_t>(axis.step, 1),
                axis.count, row + outer * axis.count},
               positions);
    }
  }
  return runs;
}

std::int64_t rows_of(std::span<const RowRun> runs) {
  std::int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.count;
  return rows;
}

std::vector<RowRun> one_after_another(std::span<const RowRun> runs) {
  std::vector<RowRun> all(runs.begin(), runs.end());
  std::int64_t row = 0;
  for (RowRun& run : all) {
    run.row = row;
    row += run.count;
  }
  return all;
}

void take_rows(const ConstView& from, std::int64_t first, layout::Range batch, layout::Range heads,
               std::span<const RowRun> runs, std::byte*& to) {
  for_each_stretch<const std::byte>(from, first, batch, heads, [&](const auto& rows) {
    for (const RowRun& run : runs) {
      copy_run(to, rows.bytes, rows.base + run.position * rows.stride, run.step * rows.stride,
               rows.bytes, run.count);
      to += run.count * rows.bytes;
    }
  });
}

void put_rows(const View& to, std::int64_t first, layout::Range batch, layout::Range heads,
              std::span<const RowRun> runs, const std::byte*& from) {
  for_each_stretch<std::byte>(to, first, batch, heads, [&](const auto& rows) {
    for (const RowRun& run : runs) {
      copy_run(rows.base + run.position * rows.stride, run.step * rows.stride, from, rows.bytes,
               rows.bytes, run.count);
      from += run.count * rows.bytes;
    }
  });
}

void pack_rows(const View& packed, const ConstView& from, std::int64_t first, layout::Range batch,
               layout::Range heads, std::span<const RowRun> runs, const base::Workers& workers) {
  if (runs.empty()) return;
  base::parallel_for(workers, batch.count() * heads.count(), [&](std::int64_t i) {
    const std::int64_t b = i / heads.count(), h = i % heads.count();
    const Rows<const std::byte> there(from, batch.begin + b, heads.begin + h, first);
    const Rows<std::byte> here(packed, b, h, 0);
    for (const RowRun& run : runs) {
      std::byte* to = here.base + run.row * here.stride;
      copy_run(to, here.stride, there.base + run.position * there.stride, run.step * there.stride,
               here.bytes, run.count);
    }
  });
}

void unpack_rows(const View& to, std::int64_t first, layout::Range batch, layout::Range heads,
                 std::span<const RowRun> runs, const ConstView& packed,
                 const base::Workers& workers) {
  if (runs.empty()) return;
  base::parallel_for(workers, batch.count() * heads.count(), [&](std::int64_t i) {
    const std::int64_t b = i / heads.count(), h = i % heads.count();
    const Rows<std::byte> there(to, batch.begin + b, heads.begin + h, first);
    const Rows<const std::byte> here(packed, b, h, 0);
    for (const RowRun& run : runs) {
      std::byte* at = there.base + run.position * there.stride;
      copy_run(at, run.step * there.stride, here.base + run.row * here.stride, here.stride,
               here.bytes, run.count);
    }
  });
}

void take_packed(const ConstView& from, std::span<const RowRun> runs, std::byte*& to) {
  for_each_stretch<const std::byte>(from, 0, from.size(0), from.size(1), [&](const auto& rows) {
    for (const RowRun& run : runs) {
      std::memcpy(to, rows.base + run.row * rows.stride,
                  static_cast<std::size_t>(run.count * rows.bytes));
      to += run.count * rows.bytes;
    }
  });
}

}  // namespace treadle::distributed
