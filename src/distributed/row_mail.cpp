// How long messages are.
#include "distributed/row_mail.h"

namespace treadle::distributed {

RowTraffic forward_rows(const Plan::Held& held, bool lse, bool max) {
  const backend::Sizes& sizes = held.sizes;
  const DType q = held.q, compute = sizes.compute;
  const std::int64_t numbers = (lse ? 1 : 0) + (max ? 1 : 0);
  const std::int64_t final = RowBytes().add(q, sizes.value_dim).add(compute, numbers).sum;
  const RowBytes state = RowBytes().add(compute, sizes.value_dim + 2);
  return {RowBytes().add(q, sizes.dim), state, [=](const PartShape& part) {
            return part.cut ? 0 : part.final ? final : state.sum;
          }};
}

RowTraffic backward_rows(const Plan::Held& held) {
  const backend::Sizes& sizes = held.sizes;
  const DType q = held.q, compute = sizes.compute;
  const std::int64_t final = RowBytes().add(q, sizes.dim).sum;
  const RowBytes sum = RowBytes().add(compute, sizes.dim);
  return {RowBytes().add(q, sizes.dim + sizes.value_dim).add(compute, 2), sum,
          [=](const PartShape& part) { return part.cut     ? 0
                                              : part.final ? final
                                                           : sum.sum; }};
}

std::int64_t rows_moved(const PartShape& shape, std::span<const RowRun> runs,
                        std::int64_t per_key_head) {
  return shape.piece.batch.count() * shape.heads(per_key_head).count() * rows_of(runs);
}

namespace {

// Sums f(shape, how many rows) over what this rank has for another's parts, or another has for this rank's.
template <class F>
std::int64_t over_away(const Plan::Held& held, int rank, const F& f) {
  std::int64_t sum = 0;
  for (const Away& away : held.away)
    if (away.rank == rank)
      sum += f(away.shape, rows_moved(away.shape, away.rows, held.per_key_head()));
  return sum;
}
template <class F>
std::int64_t over_parts(const Plan::Held& held, int rank, const F& f) {
  std::int64_t sum = 0;
  for (const Part& part : held.parts)
    sum +=
        f(part, rows_moved(part, part.from[static_cast<std::size_t>(rank)], held.per_key_head()));
  return sum;
}

// As aligned() has it.
auto bytes_back(const RowTraffic& rows) {
  return [&](const PartShape& part, std::int64_t count) {
    return (rows.back(part) * count + 7) / 8 * 8;
  };
}

}  // namespace

std::int64_t bytes_to_parts(const Plan::Held& held, int rank, const RowBytes& row) {
  return held.rows_to[static_cast<std::size_t>(rank)].rows() * row.sum;
}

std::int64_t bytes_from_homes(const Plan::Held& held, int rank, const RowBytes& row) {
  return held.rows_from[static_cast<std::size_t>(rank)].rows() * row.sum;
}

std::int64_t bytes_to_homes(const Plan::Held& held, int rank, const RowTraffic& rows) {
  return over_parts(held, rank, bytes_back(rows));
}

std::int64_t bytes_from_parts(const Plan::Held& held, int rank, const RowTraffic& rows) {
  return over_away(held, rank, bytes_back(rows));
}

std::int64_t bytes_met(const Plan::Held& held, int cut_rank, int joining_rank,
                       const RowBytes& row) {
  std::int64_t bytes = 0;
  for (const Meeting& meeting : held.meetings)
    if (meeting.cut_rank == cut_rank && meeting.joining_rank == joining_rank)
      bytes += meeting.slices * meeting.count() * row.sum;
  return bytes;
}

std::int64_t bytes_of_sums(const Plan::Held& held, std::span<const SumRows> sums) {
  return rows_of(sums) *
         RowBytes().add(held.sizes.compute, held.sizes.dim + held.sizes.value_dim).sum;
}

Traffic traffic_of(const Plan::Held& held, const RowTraffic& rows, bool sums) {
  Traffic traffic;
  const std::int64_t row =
      RowBytes().add(held.k, held.sizes.dim).add(held.v, held.sizes.value_dim).sum;
  const auto add = [&](std::int64_t sent, std::int64_t received) {
    traffic.sent += sent;
    traffic.received += received;
    traffic.messages += sent > 0 ? 1 : 0;
  };
  for (int r = 0; r < held.ranks(); ++r) {
    if (r == held.rank()) continue;
    const auto at = static_cast<std::size_t>(r);
    add(held.to[at].rows() * row + bytes_to_parts(held, r, rows.there),
        held.from[at].rows() * row + bytes_from_homes(held, r, rows.there));
    add(bytes_met(held, held.rank(), r, rows.met), bytes_met(held, r, held.rank(), rows.met));
    add(bytes_to_homes(held, r, rows) + (sums ? bytes_of_sums(held, held.sums.to()[at]) : 0),
        bytes_from_parts(held, r, rows) + (sums ? bytes_of_sums(held, held.added[at]) : 0));
  }
  return traffic;
}

void count(Traffic& moved, const Mail& mail) {
  for (const Mail::Message& message : mail.sends) {
    moved.sent += message.bytes.size();
    moved.messages += message.bytes.size() > 0 ? 1 : 0;
  }
  for (const Mail::Message& message : mail.receives) moved.received += message.bytes.size();
}

}  // namespace treadle::distributed
