// Fills parts with boxes of work. Read Dealer::run() first.
#include "distributed/deal.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "plan/chunks.h"

namespace treadle::distributed {
namespace {

using layout::Range;

struct Unit {
  Box box;
  double pairs = 0;
};

// Whether leaves may be cut at chunks that are not yet.
enum class Cuts : std::uint8_t { none, some };

// The next one is the last.
using Units = std::vector<Unit>;

// A leaf of which a key head has so much of a part's work is cut, and its first chunks, which stay
// together, are at most so much of it.
constexpr double heavy = 0.5, most_of_heavy = 0.8;
// More than so much of a part's work is cut whatever its states cost.
constexpr double most_uncut = 0.25;
// What is left over may fill parts to so many times the excess.
constexpr double most_excess = 1.4;
// How many units after the next one may be taken instead.
constexpr std::size_t look_ahead = 32;

std::int64_t boxes_of(const Box& box) { return box.key_heads.count() * box.batch.count(); }

class Dealer {
 public:
  Dealer(const Group& group, Route route, double excess)
      : group_(group), route_(route), load_(static_cast<std::size_t>(group.parts)) {
    for (std::int64_t pass = 0; pass < group.costs.passes(); ++pass)
      for (std::int64_t leaf = 0; leaf < group.costs.pass(pass).leaves; ++leaf)
        total_ += group_.costs.of(whole(pass, leaf));
    mean_ = total_ / group.parts;
    excess_ = std::max(excess, 0.005);
  }

  std::vector<Share> run() {
    collect();
    keep();
    move(away_, 1, Cuts::none);
    take_back();
    for (std::size_t pass = 0; pass < in_order_.size(); ++pass) stream(pass);
    deal_rest();
    return std::move(shares_);
  }

 private:
  [[nodiscard]] Box whole(std::int64_t pass, std::int64_t leaf) const {
    return {pass, leaf, group_.costs.batch(), group_.key_heads, group_.costs.chunks()};
  }
  [[nodiscard]] Unit unit(const Box& box) const { return {box, group_.costs.of(box)}; }
  [[nodiscard]] double& load(int part) { return load_[static_cast<std::size_t>(part)]; }

  void collect();
  void cut_heavy(const Box& leaf, int home);
  void keep();
  void set_aside(int part);
  void take_back();
  void move(Units& units, double more, Cuts cuts);
  void stream(std::size_t pass);
  void deal_rest();

  void give(int part, const Unit& unit) {
    shares_.push_back({unit.box, part});
    load(part) += unit.pairs;
  }
  // A part with less room than `enough` has enough.
  void fill(int part, double cap, double enough, Cuts cuts, Units& units);
  bool take(int part, std::size_t at, double room, Units& units);
  [[nodiscard]] double that_fits(const Unit& unit, double room) const;
  bool take_cut(int part, std::size_t at, double room, Cuts cuts, Units& units);
  [[nodiscard]] std::optional<std::pair<Unit, Unit>> divided(const Unit& all, double room) const;
  [[nodiscard]] std::optional<std::pair<Unit, Unit>> cut(const Unit& all, double room) const;

  const Group& group_;
  Route route_;
  double total_ = 0, mean_ = 0, excess_ = 0;
  double largest_ = 0;  // a key head of a leaf that is not cut from the start
  std::vector<double> load_;
  std::vector<Share> shares_;
  std::vector<Units> kept_;      // by home: what a part keeps as long as it has room
  std::vector<Units> small_;     // by home: of these, what fills gaps
  std::vector<Units> in_order_;  // by pass: what is dealt in order
  Units away_;
};

// Leaves of one part, or of none, and cut ones.
void Dealer::collect() {
  kept_.resize(static_cast<std::size_t>(group_.parts));
  small_.resize(kept_.size());
  in_order_.resize(static_cast<std::size_t>(group_.costs.passes()));
  std::vector<Units> at_home(static_cast<std::size_t>(group_.parts));
  for (std::int64_t pass = 0; pass < group_.costs.passes(); ++pass) {
    const PassWork& work = group_.costs.pass(pass);
    Units& in_order = in_order_[static_cast<std::size_t>(pass)];
    const std::int64_t lists = group_.divisible.batch ? work.batch_lists : 1;
    for (std::int64_t list = 0; list < lists; ++list) {
      for (std::int64_t leaf = 0; leaf < work.leaves; ++leaf) {
        Box box = whole(pass, leaf);
        if (lists > 1) box.batch = {list, list + 1};
        const int home =
            group_.homes[static_cast<std::size_t>(pass)][static_cast<std::size_t>(leaf)];
        const Unit all = unit(box);
        const auto boxes = static_cast<double>(box.batch.count() * box.key_heads.count());
        const bool may_cut =
            group_.divisible.chunks && (group_.divisible.heads || box.key_heads.count() == 1);
        if (may_cut && group_.parts > 1 && all.pairs >= heavy * mean_ * boxes && all.pairs > 0) {
          cut_heavy(box, home);
          continue;
        }
        largest_ = std::max(largest_, all.pairs / boxes);
        if (route_ == Route::transport && home >= 0) {
          at_home[static_cast<std::size_t>(home)].push_back(all);
        } else {
          in_order.push_back(all);
        }
      }
    }
    std::ranges::reverse(in_order);
  }
  // Cut leaves first: they are the ones that are dear to move.
  for (std::size_t part = 0; part < kept_.size(); ++part) {
    kept_[part].insert(kept_[part].end(), at_home[part].begin(), at_home[part].end());
    std::ranges::reverse(kept_[part]);
  }
}

// To the owners of keys, chunk by chunk. The first one's state is what all others are joined to, near the
// queries, each key head's in a part of its own; it takes more chunks as long as their states are more bytes than
// their keys.
void Dealer::cut_heavy(const Box& leaf, int home) {
  const std::int64_t heads = leaf.key_heads.count();
  for (std::int64_t i = 0; i < heads; ++i) {
    Box box = leaf;
    box.key_heads = {leaf.key_heads.begin + i, leaf.key_heads.begin + i + 1};
    const Range seen = group_.costs.seen(box);
    const int part = static_cast<int>(((home >= 0 ? home : leaf.leaf) + i) % group_.parts);
    const auto joins = [&](std::int64_t chunk) {
      Box more = box;
      more.chunks = {0, chunk + 1};
      if (group_.costs.of(more) > most_of_heavy * mean_) return false;
      if (group_.parts_of_chunk[static_cast<std::size_t>(chunk)] == std::vector{part}) return true;
      more.chunks.begin = chunk;
      const auto keys =
          static_cast<double>(plan::keys_of_chunk(group_.chunks.begin + chunk).count());
      return group_.costs.of(more) / keys * group_.state_in_keys >= keys;
    };
    std::int64_t own = 1;
    while (own < seen.end && joins(own)) ++own;
    box.chunks = {0, own};
    kept_[static_cast<std::size_t>(part)].push_back(unit(box));
    for (std::int64_t chunk = own; chunk < seen.end; ++chunk) {
      box.chunks = {chunk, chunk + 1};
      const Unit one = unit(box);
      if (one.pairs == 0) continue;
      const std::vector<int>& parts = group_.parts_of_chunk[static_cast<std::size_t>(chunk)];
      const int owner =
          parts.empty() ? 0 : parts[static_cast<std::size_t>(std::ssize(parts) * i / heads)];
      Units& units = kept_[static_cast<std::size_t>(owner)];
      Unit* const before = units.empty() ? nullptr : &units.back();
      // Neighbouring chunks stay together.
      if (before != nullptr && before->box.pass == box.pass && before->box.leaf == box.leaf &&
          before->box.batch == box.batch && before->box.key_heads == box.key_heads &&
          before->box.chunks.end == chunk && before->box.chunks.begin > 0) {
        before->box.chunks.end = chunk + 1;
        before->pairs += one.pairs;
      } else {
        units.push_back(one);
      }
    }
  }
}

// A part that has its share but for a quarter of the excess has enough. Nothing is cut here: if most parts
// end a little short of it, there is room all the same.
void Dealer::keep() {
  for (int part = 0; part < group_.parts; ++part) {
    Units& units = kept_[static_cast<std::size_t>(part)];
    set_aside(part);
    fill(part, mean_ * (1 + excess_), mean_ * excess_ * 1.25, Cuts::none, units);
    away_.insert(away_.end(), units.rbegin(), units.rend());
  }
  std::ranges::reverse(away_);
}

// Where units are large, small ones of a part that has room fill what large ones leave.
void Dealer::set_aside(int part) {
  if (largest_ <= excess_ * mean_) return;
  Units& units = kept_[static_cast<std::size_t>(part)];
  double all = 0, aside = 0;
  for (const Unit& unit : units) all += unit.pairs;
  if (all + largest_ >= mean_) return;
  Units& small = small_[static_cast<std::size_t>(part)];
  std::erase_if(units, [&](const Unit& unit) {
    const auto boxes = static_cast<double>(unit.box.key_heads.count() * unit.box.batch.count());
    if (unit.pairs > largest_ / 3 * boxes || aside + unit.pairs > largest_) return false;
    aside += unit.pairs;
    small.push_back(unit);
    return true;
  });
}

void Dealer::take_back() {
  Units others;
  for (int part = 0; part < group_.parts; ++part) {
    Units& small = small_[static_cast<std::size_t>(part)];
    fill(part, mean_ * (1 + excess_), 0, Cuts::none, small);
    others.insert(others.end(), small.rbegin(), small.rend());
  }
  std::ranges::reverse(others);
  others.insert(others.end(), away_.begin(), away_.end());
  away_ = std::move(others);
}

// To parts that have room: to a mean's part and so many times the excess.
void Dealer::move(Units& units, double more, Cuts cuts) {
  for (int part = 0; part < group_.parts && !units.empty(); ++part)
    fill(part, mean_ * (1 + more * excess_), mean_ * excess_ * 1.25, cuts, units);
}

// What is dealt in order: to everybody its share of what it may still have.
void Dealer::stream(std::size_t pass) {
  double here = 0, all = 0;
  for (std::size_t later = pass; later < in_order_.size(); ++later) {
    double pairs = 0;
    for (const Unit& unit : in_order_[later]) pairs += unit.pairs;
    all += pairs;
    if (later == pass) here = pairs;
  }
  if (all == 0) return;
  const double slack = mean_ * excess_ / 2;
  double rooms = 0;
  for (int part = 0; part < group_.parts; ++part) rooms += std::max(0.0, mean_ - load(part));
  // What a part could not take falls to the next one.
  double missing = 0;
  for (int part = 0; part < group_.parts; ++part) {
    const double cap = load(part) +
                       std::max(0.0, mean_ - load(part)) * here / std::max(all, rooms) +
                       std::min(missing, slack);
    fill(part, cap, slack / 2, Cuts::some, in_order_[pass]);
    missing = std::max(0.0, cap - load(part));
  }
}

// What found no room.
void Dealer::deal_rest() {
  for (const Units& units : in_order_) away_.insert(away_.begin(), units.begin(), units.end());
  // Cuts cost more than what is still missing of a share.
  for (const double more : {1.0, most_excess}) move(away_, more, Cuts::none);
  for (const double more : {1.0, most_excess}) move(away_, more, Cuts::some);
  using Loaded = std::pair<double, int>;
  std::priority_queue<Loaded, std::vector<Loaded>, std::greater<>> parts;
  for (int part = 0; part < group_.parts; ++part) parts.emplace(load(part), part);
  while (!away_.empty()) {
    const Unit next = away_.back();
    away_.pop_back();
    const int part = parts.top().second;
    // Of what is large, only as much as is still missing.
    const double room = std::max(mean_ * (1 + excess_) - load(part), 0.0);
    if (next.pairs > std::max(room, excess_ * mean_ / 4)) {
      auto halves = divided(next, room);
      if (!halves) halves = cut(next, room);
      if (halves) {
        away_.push_back(halves->second);
        away_.push_back(halves->first);
        continue;
      }
    }
    parts.pop();
    give(part, next);
    parts.emplace(load(part), part);
  }
}

// The next units, as long as there is room; where the next one does not fit, one soon after it.
void Dealer::fill(int part, double cap, double enough, Cuts cuts, Units& units) {
  while (!units.empty()) {
    const double room = cap - load(part);
    if (room <= 0) return;
    if (take(part, units.size() - 1, room, units)) continue;
    if (room < enough) return;
    const std::size_t last = units.size() > look_ahead ? units.size() - look_ahead : 0;
    bool taken = false;
    std::size_t best = units.size();
    double most = 0;
    for (std::size_t at = units.size(); at-- > last;) {
      const double pairs = that_fits(units[at], room);
      if (pairs <= most) continue;
      most = pairs;
      best = at;
    }
    if (best < units.size()) taken = take(part, best, room, units);
    for (std::size_t at = units.size(); at-- > last && !taken;)
      taken = take_cut(part, at, room, cuts, units);
    if (!taken) return;
  }
}

// How much take() would.
double Dealer::that_fits(const Unit& unit, double room) const {
  if (unit.pairs <= room) return unit.pairs;
  const auto parts = divided(unit, room);
  return parts && parts->first.pairs <= room ? parts->first.pairs : 0;
}

// The unit, or some of its key heads or batch entries.
bool Dealer::take(int part, std::size_t at, double room, Units& units) {
  if (units[at].pairs <= room) {
    give(part, units[at]);
    units.erase(units.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }
  const auto parts = divided(units[at], room);
  if (!parts || parts->first.pairs > room) return false;
  give(part, parts->first);
  units[at] = parts->second;
  return true;
}

// Some chunks of one of its key heads and batch entries.
bool Dealer::take_cut(int part, std::size_t at, double room, Cuts cuts, Units& units) {
  Unit one = units[at];
  const bool is_cut = one.box.chunks.count() < group_.costs.chunks();
  if (!is_cut && cuts == Cuts::none) return false;
  if (group_.costs.seen(one.box).count() < 2) return false;
  Units others;
  while (const auto parts = divided(one, 0)) {
    one = parts->first;
    others.push_back(parts->second);
  }
  const auto parts = cut(one, room);
  if (!parts) return false;
  give(part, parts->first);
  units[at] = parts->second;
  units.insert(units.begin() + static_cast<std::ptrdiff_t>(at), others.begin(), others.end());
  return true;
}

// As many key heads, or else batch entries, as there is room for, but at least one, and the others.
std::optional<std::pair<Unit, Unit>> Dealer::divided(const Unit& all, double room) const {
  for (Range Box::* range : {&Box::key_heads, &Box::batch}) {
    const Range whole = all.box.*range;
    const bool may = range == &Box::batch ? group_.divisible.batch : group_.divisible.heads;
    if (whole.count() < 2 || !may) continue;
    std::int64_t first = whole.begin + 1;
    if (group_.costs.are_alike(all.box.pass)) {
      const double one = all.pairs / static_cast<double>(whole.count());
      if (one > 0)
        first = whole.begin + std::clamp<std::int64_t>(static_cast<std::int64_t>(room / one), 1,
                                                       whole.count() - 1);
    } else {
      Box more = all.box;
      for (; first + 1 < whole.end; ++first) {
        (more.*range).end = first + 1;
        if (group_.costs.of(more) > room) break;
      }
    }
    Box front = all.box, back = all.box;
    (front.*range).end = (back.*range).begin = first;
    return std::pair(unit(front), unit(back));
  }
  return std::nullopt;
}

// Some chunks that fit, at one end, and the others. Chunks after the first ones have a state each, so
// of the two ways the one is better that leaves fewer of those.
std::optional<std::pair<Unit, Unit>> Dealer::cut(const Unit& all, double room) const {
  const Range chunks = group_.costs.seen(all.box);
  if (chunks.count() < 2) return std::nullopt;
  const double states_of_chunk = group_.pairs_of_states[static_cast<std::size_t>(all.box.pass)] *
                                 static_cast<double>(boxes_of(all.box));
  // What is sent should take less time than what is moved. Most chunks have less than four times the mean.
  const bool must = all.pairs >= most_uncut * mean_;
  if (!must && 4 * all.pairs < states_of_chunk * static_cast<double>(chunks.count()))
    return std::nullopt;
  const auto some = [&](std::int64_t begin, std::int64_t end) {
    Box box = all.box;
    box.chunks = {begin, end};
    return unit(box);
  };
  // The most that fits: begin ... first, or last ... the end.
  std::int64_t first = chunks.begin, last = chunks.end;
  const std::int64_t begin = all.box.chunks.begin;
  auto step = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunks.count())));
  for (; step > 0; step /= 2) {
    if (first + step < chunks.end && some(begin, first + step).pairs <= room) first += step;
    if (last - step > chunks.begin && some(last - step, chunks.end).pairs <= room) last -= step;
  }
  const double front = first > chunks.begin ? some(begin, first).pairs : 0;
  const double back = last < chunks.end ? some(last, chunks.end).pairs : 0;
  const double least = std::min(room, excess_ * mean_) / 4;
  if (std::max(front, back) < least) return std::nullopt;
  // Nobody has to do empty chunks that follow.
  const bool both = std::min(front, back) >= std::max(front, back) - least;
  const bool at_first = both ? first > last : front > back;
  const Unit later = at_first ? some(first, chunks.end) : some(last, chunks.end);
  const Unit earlier = at_first ? some(begin, first) : some(begin, last);
  const double states = static_cast<double>(later.box.chunks.count()) * states_of_chunk;
  if (!must && states > std::min(later.pairs, earlier.pairs)) return std::nullopt;
  return at_first ? std::pair(earlier, later) : std::pair(later, earlier);
}

}  // namespace

Costs::Costs(std::span<const PassWork> passes, std::int64_t batch, std::int64_t key_heads)
    : passes_(passes), batch_(batch) {
  for (const PassWork& work : passes) {
    chunks_ = std::max(chunks_, work.chunks);
    heads_alike_ = heads_alike_ && (work.head_lists == 1 || key_heads == 1);
    Sums& sums = sums_.emplace_back();
    sums.before.reserve(work.keys.size() * static_cast<std::size_t>(work.chunks + 1));
    for (std::size_t list = 0; list < work.keys.size(); ++list) {
      double before = 0;
      sums.before.push_back(0);
      Range seen{work.chunks, 0};
      const auto of_chunks = work.pairs_of(list);
      for (std::int64_t chunk = 0; chunk < work.chunks; ++chunk) {
        const std::int64_t pairs = of_chunks[static_cast<std::size_t>(chunk)];
        sums.before.push_back(before += static_cast<double>(pairs));
        if (pairs == 0) continue;
        seen.begin = std::min(seen.begin, chunk);
        seen.end = chunk + 1;
      }
      sums.seen.push_back(seen);
    }
  }
}

template <class Each>
double Costs::for_each_list(const Box& box, const Each& each) const {
  const PassWork& work = pass(box.pass);
  const Range batch = work.batch_lists == 1 ? Range(1) : box.batch;
  const Range heads = work.head_lists == 1 ? Range(1) : box.key_heads;
  for (std::int64_t b = batch.begin; b < batch.end; ++b)
    for (std::int64_t head = heads.begin; head < heads.end; ++head)
      each(work.list(box.leaf, b, head));
  const std::int64_t times = (work.batch_lists == 1 ? box.batch.count() : 1) *
                             (work.head_lists == 1 ? box.key_heads.count() : 1);
  return static_cast<double>(times);
}

double Costs::of(const Box& box) const {
  const std::vector<double>& before = sums_[static_cast<std::size_t>(box.pass)].before;
  const auto stride = static_cast<std::size_t>(chunks_ + 1);
  double pairs = 0;
  const double times = for_each_list(box, [&](std::size_t list) {
    pairs += before[list * stride + static_cast<std::size_t>(box.chunks.end)] -
             before[list * stride + static_cast<std::size_t>(box.chunks.begin)];
  });
  return pairs * times;
}

Range Costs::seen(const Box& box) const {
  Range all{box.chunks.end, box.chunks.begin};
  for_each_list(box, [&](std::size_t list) {
    const Range& seen = sums_[static_cast<std::size_t>(box.pass)].seen[list];
    all.begin = std::min(all.begin, std::max(seen.begin, box.chunks.begin));
    all.end = std::max(all.end, std::min(seen.end, box.chunks.end));
  });
  return all;
}

std::vector<Share> deal(const Group& group, Route route, double excess) {
  return Dealer(group, route, excess).run();
}

}  // namespace treadle::distributed
