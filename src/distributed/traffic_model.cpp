// Adds up what pieces move. Read model() first.
#include "distributed/traffic_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <map>
#include <span>
#include <tuple>

#include "distributed/marked_keys.h"
#include "distributed/peers.h"
#include "plan/chunks.h"
#include "plan/tree_parts.h"

namespace treadle::distributed {
namespace {

using layout::Range;
using layout::Run;

constexpr std::int64_t float_bytes = 4;

struct Speeds {
  double pairs_per_second, bytes_per_second;
  double of_message = 20e-6;  // seconds

  Speeds(const PlanCall& call, const PlanOptions& options) {
    constexpr double usual_teraflops = 2, of_bandwidth = 0.9;
    const double teraflops = options.teraflops > 0 ? options.teraflops : usual_teraflops;
    pairs_per_second =
        teraflops * 1e12 /
        static_cast<double>(std::max<std::int64_t>(2 * (call.dim + call.value_dim), 1));
    bytes_per_second = options.gigabits * 1e9 / 8 * of_bandwidth;
  }
};

// Rows of K and V, or of their gradients, that a part has to do with: the same for all its ranks, except that
// each has some of them itself.
struct Moved {
  struct Near {
    Range keys;
    double weight = 0;
  };
  double rows = 0;
  std::vector<Near> near;  // those among which are keys of the part's own ranks

  [[nodiscard]] double within(Range shard) const {
    double own = 0;
    for (const Near& some : near)
      own += some.weight *
             static_cast<double>(std::max<std::int64_t>(
                 0, std::min(some.keys.end, shard.end) - std::max(some.keys.begin, shard.begin)));
    return own;
  }
};

// Key heads of some batch entries in which a rank has the same pieces, of the same keys.
struct Alike {
  Range batch, key_heads;
  std::vector<const Piece*> pieces;
};

std::vector<std::int64_t> borders(std::span<const Piece> pieces, Range Piece::* range, bool each) {
  std::vector<std::int64_t> borders;
  for (const Piece& piece : pieces) {
    const Range& of = piece.*range;
    for (std::int64_t at = of.begin; each && at < of.end; ++at) borders.push_back(at);
    borders.push_back(of.begin);
    borders.push_back(of.end);
  }
  std::ranges::sort(borders);
  const auto same = std::ranges::unique(borders);
  borders.erase(same.begin(), same.end());
  return borders;
}

bool holds(Range all, Range some) { return all.begin <= some.begin && some.end <= all.end; }

// What ranks move, and what each rank of a part moves besides.
struct Book {
  std::vector<Traffic> ranks, parts;
};

class Model {
 public:
  Model(const Problem& problem, std::span<const Piece> pieces, int head_groups)
      : problem_(problem),
        call_(problem.call),
        pieces_(pieces),
        ranks_(problem.ranks()),
        chunks_(plan::chunks_of(problem.call.keys)),
        groups_(problem.costs.heads_alike() ? head_groups : 1),
        first_peers_(problem.keys, groups_),
        last_peers_(problem.keys, groups_),
        gradient_peers_(problem.keys, groups_),
        keys_(problem.call.keys),
        owners_(problem.keys),
        needed_(problem.keys),
        added_(problem.keys) {
    const auto count = static_cast<std::size_t>(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) part_of_.push_back(rank / groups_);
    owned_.resize(count);
    found_.pairs.resize(count);
    found_.memory.resize(count);
    for (Book* book : {&forward_, &backward_}) {
      book->ranks.resize(count);
      book->parts.resize(count / static_cast<std::size_t>(groups_));
    }
    for (const PassWork& work : problem.passes) {
      each_entry_ = each_entry_ || work.batch_lists > 1;
      each_head_ = each_head_ || work.head_lists > 1;
    }
  }

  // If all key heads are alike, so are the head groups: the first one is looked at.
  Modelled run() {
    find_joining();
    for (auto first = pieces_.begin(); first != pieces_.end();) {
      const auto last =
          std::find_if(first, pieces_.end(), [&](const Piece& p) { return p.rank != first->rank; });
      if (first->rank % groups_ == 0) add({first, last});
      first = last;
    }
    share_out();
    count_key_bytes();
    last_peers_.count_sent(found_.forward);
    first_peers_.count_received({&found_.forward, &found_.backward});
    gradient_peers_.count_sent(found_.backward);
    sum_up();
    return std::move(found_);
  }

 private:
  void find_joining();
  void add(std::span<const Piece> of_rank);
  void share_out();
  void count_pairs(const Piece& piece);
  template <class Each>
  void for_each_owner(const Piece& piece, const Each& each);
  [[nodiscard]] std::int64_t heads_of(const Piece& piece) const;
  void move_there(const Piece& piece);
  void move_back(const Piece& piece);
  void move_rows(std::span<const Piece> of_rank);
  void move_states(const Piece& piece);
  void find_keys(const Alike& some);
  void find_gradients(const Piece& piece);
  void add_to(Moved& moved, RowsByOwner& owners, Peers& peers, double lists);
  void move_keys();
  void count_key_bytes();
  void sum_up();
  [[nodiscard]] std::vector<Alike> alike(std::span<const Piece> pieces, bool each) const;

  // each(a piece of one leaf, batch entry and key head).
  template <class Each>
  static void for_each_leaf(const Piece& piece, const Each& each) {
    Piece one = piece;
    for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf) {
      for (std::int64_t b = piece.batch.begin; b < piece.batch.end; ++b) {
        for (std::int64_t h = piece.key_heads.begin; h < piece.key_heads.end; ++h) {
          one.leaves = {leaf, leaf + 1};
          one.batch = {b, b + 1};
          one.key_heads = {h, h + 1};
          each(one);
        }
      }
    }
  }
  // Or joins.
  [[nodiscard]] bool is_cut(const Piece& piece) const {
    return piece.chunks.count() < chunks_.count();
  }
  static Traffic& of(std::vector<Traffic>& traffic, int rank) {
    return traffic[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int part_of(int rank) const { return part_of_[static_cast<std::size_t>(rank)]; }
  // From a rank to all ranks of a part, or from those to it: to itself nobody sends.
  void send_to_part(Book& book, int from, int part, std::int64_t bytes) const {
    const bool inside = part_of(from) == part;
    of(book.ranks, from).sent += bytes * (groups_ - (inside ? 1 : 0));
    of(book.parts, part).received += bytes;
    if (inside) of(book.ranks, from).received -= bytes;
  }
  void send_from_part(Book& book, int part, int to, std::int64_t bytes) const {
    const bool inside = part_of(to) == part;
    of(book.ranks, to).received += bytes * (groups_ - (inside ? 1 : 0));
    of(book.parts, part).sent += bytes;
    if (inside) of(book.ranks, to).sent -= bytes;
  }
  // Those of its chunks.
  [[nodiscard]] Range keys_of(const Piece& piece) const;

  const Problem& problem_;
  const PlanCall& call_;
  std::span<const Piece> pieces_;
  int ranks_;
  Range chunks_;
  bool each_entry_ = false, each_head_ = false;  // have lists of their own
  // (pass, leaf, batch entry, key head) of cut leaves: who joins them.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
           std::vector<const Piece*>>
      joining_;
  int groups_;                              // that are alike
  std::vector<int> part_of_;                // by rank
  Peers first_peers_;                       // who sends a rank what it needs
  Peers last_peers_, gradient_peers_;       // whom it sends what it found
  std::vector<std::pair<int, int>> joins_;  // from, to
  Book forward_, backward_;
  std::vector<std::int64_t> owned_;  // for_each_owner()'s
  std::vector<int> owners_here_;
  std::vector<Piece> needing_;        // move_rows()'s
  std::vector<std::int64_t> leaves_;  // find_gradients()'s
  int first_rank_ = 0;                // of the part that is looked at
  Moved keys_moved_, sums_moved_;     // what it needs, and what it adds to gradients
  MarkedKeys keys_;
  Owners owners_;
  RowsByOwner needed_, added_;  // of K and V, and of their gradients
  Modelled found_;
};

void Model::find_joining() {
  for (const Piece& piece : pieces_) {
    if (!is_cut(piece) || !piece.chunks.empty() || piece.rank % groups_ != 0) continue;
    for_each_leaf(piece, [&](const Piece& one) {
      joining_[{one.pass, one.leaves.begin, one.batch.begin, one.key_heads.begin}].push_back(
          &piece);
    });
  }
}

void Model::add(std::span<const Piece> of_rank) {
  for (const Piece& piece : of_rank) {
    count_pairs(piece);
    if (is_cut(piece) && !piece.chunks.empty())
      for_each_leaf(piece, [&](const Piece& one) { move_states(one); });
  }
  move_rows(of_rank);
  first_rank_ = of_rank.front().rank;
  keys_moved_ = sums_moved_ = {};
  for (const Alike& some : alike(of_rank, true)) {
    find_keys(some);
  }
  for (const Piece& piece : of_rank)
    if (!piece.chunks.empty() || chunks_.empty()) find_gradients(piece);
  move_keys();
}

// What is the same for the ranks of a part, to each of them.
void Model::share_out() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const int first = rank - rank % groups_;
    found_.pairs[static_cast<std::size_t>(rank)] = found_.pairs[static_cast<std::size_t>(first)];
    for (Book* book : {&forward_, &backward_}) {
      of(book->ranks, rank).sent += of(book->parts, part_of(rank)).sent;
      of(book->ranks, rank).received += of(book->parts, part_of(rank)).received;
    }
  }
  found_.forward = std::move(forward_.ranks);
  found_.backward = std::move(backward_.ranks);
}

void Model::count_pairs(const Piece& piece) {
  for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf)
    found_.pairs[static_cast<std::size_t>(piece.rank)] +=
        problem_.costs.of({piece.pass, leaf, piece.batch, piece.key_heads, piece.chunks});
}

// Rows of tiles of a piece's pass by owner, into owned_; then each(owner, how many).
template <class Each>
void Model::for_each_owner(const Piece& piece, const Each& each) {
  const auto pass = static_cast<std::size_t>(piece.pass);
  const auto add = [&](std::span<const RowsOfRank> owners) {
    for (const RowsOfRank& rows : owners) {
      std::int64_t& sum = owned_[static_cast<std::size_t>(rows.rank)];
      if (sum == 0) owners_here_.push_back(rows.rank);
      sum += rows.rows;
    }
  };
  const std::int64_t per_leaf = call_.tiles_per_leaf[pass];
  if (piece.tiles == tiles_of(piece.leaves, problem_.tiles[pass].count(), per_leaf)) {
    for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf)
      add(problem_.homes[pass].of(leaf));
  } else {
    add(rows_of(problem_.tiles[pass], piece.tiles, problem_.queries));
  }
  for (const int owner : owners_here_) {
    std::int64_t& sum = owned_[static_cast<std::size_t>(owner)];
    each(owner, sum);
    sum = 0;
  }
  owners_here_.clear();
}

std::int64_t Model::heads_of(const Piece& piece) const {
  return piece.batch.count() * piece.key_heads.count() * call_.per_key_head;
}

// Of queries, to a piece.
void Model::move_there(const Piece& piece) {
  const int part = part_of(piece.rank);
  const std::int64_t heads = heads_of(piece), q = call_.dim * call_.query_bytes;
  const std::int64_t dout = call_.value_dim * call_.query_bytes + 2 * float_bytes;
  for_each_owner(piece, [&](int owner, std::int64_t rows) {
    send_to_part(forward_, owner, part, rows * heads * q);
    send_to_part(backward_, owner, part, rows * heads * (q + dout));
    first_peers_.add(part, owner);
  });
}

// Of what it finds, to their owners.
void Model::move_back(const Piece& piece) {
  const bool terms = problem_.passes.size() > 1;
  const int part = part_of(piece.rank);
  const std::int64_t heads = heads_of(piece);
  const std::int64_t out = terms ? (call_.value_dim + state_numbers) * state_bytes
                                 : call_.value_dim * call_.query_bytes + float_bytes;  // with lse
  const std::int64_t dq = call_.dim * (terms ? float_bytes : call_.query_bytes);
  for_each_owner(piece, [&](int owner, std::int64_t rows) {
    send_from_part(forward_, part, owner, rows * heads * out);
    send_from_part(backward_, part, owner, rows * heads * dq);
    last_peers_.add(part, owner);
    gradient_peers_.add(part, owner);
  });
}

// Rows that several pieces of a rank need come once, if their passes have the same leaves.
void Model::move_rows(std::span<const Piece> of_rank) {
  needing_.clear();
  for (const Piece& piece : of_rank) {
    const bool joins = is_cut(piece) && piece.chunks.empty();
    if (!is_cut(piece) || joins) move_back(piece);
    if (joins) continue;
    needing_.push_back(piece);
    needing_.back().pass =
        static_cast<std::int64_t>(problem_.tilings[static_cast<std::size_t>(piece.pass)]);
  }
  const auto tiles = [](const Piece& piece) { return std::tuple(piece.pass, piece.tiles.begin); };
  std::ranges::sort(needing_, {}, tiles);
  bool shares = false;
  for (std::size_t i = 1; i < needing_.size(); ++i) {
    const Piece &piece = needing_[i], &last = needing_[i - 1];
    shares = shares || (piece.pass == last.pass && piece.tiles.begin < last.tiles.end);
  }
  if (!shares) {
    for (const Piece& piece : needing_) move_there(piece);
    return;
  }
  for (const Alike& some : alike(needing_, false)) {
    Piece joined{.rank = of_rank.front().rank, .pass = -1};
    for (const Piece* piece : some.pieces) {
      if (piece->pass == joined.pass && piece->tiles.begin <= joined.tiles.end) {
        joined.tiles.end = std::max(joined.tiles.end, piece->tiles.end);
        joined.leaves.end = std::max(joined.leaves.end, piece->leaves.end);
        continue;
      }
      if (joined.pass >= 0) move_there(joined);
      joined = *piece;
      joined.batch = some.batch;
      joined.key_heads = some.key_heads;
    }
    if (joined.pass >= 0) move_there(joined);
  }
}

// Of one batch entry and key head of a cut leaf, to who joins them.
void Model::move_states(const Piece& piece) {
  const layout::Tiles& tiles = problem_.tiles[static_cast<std::size_t>(piece.pass)];
  const std::int64_t states = piece.chunks.begin == 0 ? 1 : piece.chunks.count();
  for (const Piece* joins :
       joining_.at({piece.pass, piece.leaves.begin, piece.batch.begin, piece.key_heads.begin})) {
    if (joins->rank == piece.rank) continue;
    std::int64_t rows = 0;
    const std::int64_t end = std::min(joins->tiles.end, piece.tiles.end);
    for (std::int64_t tile = std::max(joins->tiles.begin, piece.tiles.begin); tile < end; ++tile)
      rows += tiles.size(tile);
    if (rows == 0) continue;
    last_peers_.add_join(piece.rank, joins->rank);
    gradient_peers_.add_join(piece.rank, joins->rank);
    // Group by group.
    const auto to = [&](Book& book, std::int64_t numbers) {
      const std::int64_t bytes = rows * call_.per_key_head * states * numbers * state_bytes;
      of(book.parts, part_of(piece.rank)).sent += bytes;
      of(book.parts, part_of(joins->rank)).received += bytes;
    };
    to(forward_, call_.value_dim + state_numbers);
    to(backward_, call_.dim);
  }
}

// `each`: where lists differ, one by one.
std::vector<Alike> Model::alike(std::span<const Piece> pieces, bool each) const {
  const auto batch = borders(pieces, &Piece::batch, each && each_entry_),
             heads = borders(pieces, &Piece::key_heads, each && each_head_);
  std::vector<Alike> all;
  for (std::size_t b = 0; b + 1 < batch.size(); ++b) {
    for (std::size_t h = 0; h + 1 < heads.size(); ++h) {
      Alike some{{batch[b], batch[b + 1]}, {heads[h], heads[h + 1]}, {}};
      for (const Piece& piece : pieces)
        if (holds(piece.batch, some.batch) && holds(piece.key_heads, some.key_heads))
          some.pieces.push_back(&piece);
      if (!some.pieces.empty()) all.push_back(std::move(some));
    }
  }
  return all;
}

Range Model::keys_of(const Piece& piece) const {
  if (!is_cut(piece)) return call_.keys;
  if (piece.chunks.empty()) return {0, 0};
  return plan::keys_of_chunks(
      {piece.chunks.begin + chunks_.begin, piece.chunks.end + chunks_.begin});
}

// What keys_ has, for so many lists; then it is empty.
void Model::add_to(Moved& moved, RowsByOwner& owners, Peers& peers, double lists) {
  const Range own{problem_.keys.begin(first_rank_), problem_.keys.end(first_rank_ + groups_ - 1)};
  const int part = part_of(first_rank_);
  keys_.for_each([&](std::int64_t begin, std::int64_t end, double share) {
    const double weight = share * lists;
    const int first = owners_.of(begin), last = owners_.of(end - 1);
    moved.rows += weight * static_cast<double>(end - begin);
    owners.add(begin, end, first, last, weight * groups_);
    peers.add(part, first, last);
    if (begin < own.end && own.begin < end) moved.near.push_back({{begin, end}, weight});
  });
  keys_.clear();
}

void Model::find_keys(const Alike& some) {
  for (const Piece* piece : some.pieces) {
    const PassWork& work = problem_.passes[static_cast<std::size_t>(piece->pass)];
    const Range bound = keys_of(*piece);
    for (std::int64_t leaf = piece->leaves.begin; leaf < piece->leaves.end; ++leaf)
      keys_.add(work.keys[work.list(leaf, some.batch.begin, some.key_heads.begin)], bound);
  }
  const std::int64_t entries = call_.key_batch == 1 ? 1 : some.batch.count();
  add_to(keys_moved_, needed_, first_peers_, static_cast<double>(entries * some.key_heads.count()));
}

// What a piece hands over of dK and dV. Entries that share keys have their leaves in one tree, one after another.
void Model::find_gradients(const Piece& piece) {
  const PassWork& work = problem_.passes[static_cast<std::size_t>(piece.pass)];
  const bool shares = call_.key_batch == 1 && call_.batch > 1;
  const bool each_entry = work.batch_lists > 1 && !shares, each_head = work.head_lists > 1;
  const Range bound = keys_of(piece);
  const auto lists = static_cast<double>((each_entry || shares ? 1 : piece.batch.count()) *
                                         (each_head ? 1 : piece.key_heads.count()));
  leaves_.clear();
  for (std::int64_t b = 0; b < (shares ? piece.batch.count() : 1); ++b)
    for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf)
      leaves_.push_back((shares ? (piece.batch.begin + b) * work.leaves : 0) + leaf);
  plan::TreeParts tree;
  if (problem_.options.sums == Sums::same_bits)
    tree = plan::tree_parts(leaves_, (shares ? call_.batch : 1) * work.leaves);
  const Range entries = each_entry ? piece.batch : Range{piece.batch.begin, piece.batch.begin + 1};
  const Range heads =
      each_head ? piece.key_heads : Range{piece.key_heads.begin, piece.key_heads.begin + 1};
  for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
      const auto gather = [&](std::int64_t number) {
        const std::int64_t b = shares ? number / work.leaves : entry;
        keys_.add(work.keys[work.list(number % work.leaves, b, head)], bound);
      };
      for (const plan::TreePiece& node : tree.pieces) {
        for (std::int64_t leaf = node.leaves.begin; leaf < node.leaves.end; ++leaf) gather(leaf);
        add_to(sums_moved_, added_, gradient_peers_, lists);
      }
      if (!tree.pieces.empty()) continue;
      for (const std::int64_t leaf : leaves_) gather(leaf);
      add_to(sums_moved_, added_, gradient_peers_, lists);
    }
  }
}

// What is not the rank's own.
void Model::move_keys() {
  const auto bytes =
      static_cast<double>(call_.dim * call_.key_bytes + call_.value_dim * call_.value_bytes);
  const auto sums = static_cast<double>((call_.dim + call_.value_dim) * float_bytes);
  for (int rank = first_rank_; rank < first_rank_ + groups_; ++rank) {
    const Range shard{problem_.keys.begin(rank), problem_.keys.end(rank)};
    const double own = keys_moved_.within(shard), own_sums = sums_moved_.within(shard);
    needed_.take_away(rank, own);
    added_.take_away(rank, own_sums);
    const std::int64_t received = std::llround((keys_moved_.rows - own) * bytes);
    of(forward_.ranks, rank).received += received;
    of(backward_.ranks, rank).received += received;
    of(backward_.ranks, rank).sent += std::llround((sums_moved_.rows - own_sums) * sums);
  }
}

void Model::count_key_bytes() {
  const auto bytes =
      static_cast<double>(call_.dim * call_.key_bytes + call_.value_dim * call_.value_bytes);
  const auto sums = static_cast<double>((call_.dim + call_.value_dim) * float_bytes);
  const std::vector<double> needed = needed_.total(), added = added_.total();
  for (std::size_t rank = 0; rank < needed.size(); ++rank) {
    const std::int64_t sent = std::llround(needed[rank] * bytes);
    found_.forward[rank].sent += sent;
    found_.backward[rank].sent += sent;
    found_.backward[rank].received += std::llround(added[rank] * sums);
  }
}

void Model::sum_up() {
  constexpr double backward_products = 2.5, hidden_less = 1.0 / 8;
  const Speeds speeds(call_, problem_.options);
  const auto time = [&](double compute, const Traffic& traffic) {
    const double network =
        static_cast<double>(std::max(traffic.sent, traffic.received)) / speeds.bytes_per_second +
        static_cast<double>(traffic.messages) * speeds.of_message;
    return std::max(compute, network) + std::min(compute, network) * hidden_less;
  };
  Candidate& candidate = found_.candidate;
  double most = 0, all = 0;
  for (std::size_t rank = 0; rank < found_.pairs.size(); ++rank) {
    const double compute = found_.pairs[rank] / speeds.pairs_per_second;
    const Traffic &forward = found_.forward[rank], &backward = found_.backward[rank];
    most = std::max(most, found_.pairs[rank]);
    all += found_.pairs[rank];
    candidate.forward = std::max(candidate.forward, time(compute, forward));
    candidate.backward = std::max(candidate.backward, time(compute * backward_products, backward));
    candidate.forward_bytes = std::max(candidate.forward_bytes, forward.received);
    candidate.forward_sent = std::max(candidate.forward_sent, forward.sent);
    candidate.backward_bytes = std::max(candidate.backward_bytes, backward.received);
    candidate.backward_sent = std::max(candidate.backward_sent, backward.sent);
    candidate.messages = std::max(candidate.messages, forward.messages);
    found_.memory[rank] = forward.sent + forward.received;
    candidate.memory = std::max(candidate.memory, found_.memory[rank]);
  }
  candidate.balance = all > 0 ? most * static_cast<double>(found_.pairs.size()) / all : 1;
}

}  // namespace

double pairs_of_state(const PlanCall& call, const PlanOptions& options) {
  const Speeds speeds(call, options);
  return static_cast<double>((call.value_dim + state_numbers) * state_bytes) /
         speeds.bytes_per_second * speeds.pairs_per_second;
}

Modelled model(const Problem& problem, std::span<const Piece> pieces, int head_groups) {
  return Model(problem, pieces, head_groups).run();
}

}  // namespace treadle::distributed
