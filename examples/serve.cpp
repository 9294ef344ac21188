// A small serving engine: random requests come and go, their keys live in a paged cache, prompts are
// processed in chunks beside sequences that write, common prompts are shared, and every step drafts
// tokens and keeps those that were right. At the end every row that the engine used is compared, bit
// for bit, with one plain call over its whole sequence.
//
//   ./serve [requests]
#include <treadle/treadle.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

namespace {

using namespace treadle;
using Token = std::int32_t;

constexpr std::int64_t heads = 8, key_heads = 2, dim = 64, page_size = 16;
constexpr std::int64_t vocabulary = 5;  // small, so that some drafts are right
constexpr std::int64_t chunk = 48;      // tokens of a prompt per step
constexpr std::int64_t drafts = 3;

// The rows of a token at a position, and the token that a row of results asks for.
struct Model {
  Tensor q{DType::f32, {257, heads, dim}}, k{DType::f32, {257, key_heads, dim}},
      v{DType::f32, {257, key_heads, dim}};

  Model() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&q, &k, &v})
      for (float& x : tensor->data<float>()) x = normal(random);
  }
  static void add_row(std::vector<float>& to, const Tensor& table, Token token,
                      std::int64_t position) {
    const auto width = static_cast<std::size_t>(table.size(1) * table.size(2));
    const float* row = table.data<float>().data() +
                       static_cast<std::size_t>((token * 31 + position) % 257) * width;
    to.insert(to.end(), row, row + width);
  }
  // Depends on every bit, so that a wrong one changes all that follows.
  static Token next(const float* row) {
    std::uint64_t hash = 14695981039346656037u;
    for (std::int64_t i = 0; i < heads * dim; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, row + i, sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
    return static_cast<Token>((hash >> 40) % vocabulary);
  }
};

struct Request {
  std::vector<Token> tokens;  // the prompt, then what was written
  std::int64_t prompt = 0, wanted = 0;
  std::int64_t slot = -1;
  std::int64_t known = 0;          // tokens whose keys are in the cache
  std::vector<float> results;      // rows of all of them
  std::vector<Token> step_tokens;  // of the current step: known ones, then drafts

  [[nodiscard]] std::int64_t most_tokens() const { return prompt + wanted + drafts; }
  [[nodiscard]] bool writes() const { return known + 1 >= std::ssize(tokens); }
  [[nodiscard]] bool done() const { return std::ssize(tokens) >= prompt + wanted; }
};

Attention causal() {
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return kv <= q; };
  return compile(options);
}

ConstView packed(const std::vector<float>& rows, std::int64_t width) {
  return {rows.data(), DType::f32, {std::ssize(rows) / (width * dim), width, dim}};
}

class Engine {
 public:
  Engine(std::int64_t pages, std::int64_t slots, std::vector<Token> common)
      : k_pool_(DType::f32, {pages, key_heads, page_size, dim}),
        v_pool_(DType::f32, {pages, key_heads, page_size, dim}),
        cache_(k_pool_, v_pool_, {.sequences = slots, .pages_per_sequence = pages}),
        common_(std::move(common)) {
    // So that no step waits for the compiler: single tokens with drafts, and chunks of prompts.
    for (const std::int64_t queries : {drafts + 1, chunk}) {
      const TensorSpec keys(DType::f32, {1, key_heads, 2000, dim});
      attend_.prepare({{{DType::f32, {1, heads, queries, dim}}, keys, keys}});
    }
    common_slot_ = cache_.add();
    std::vector<float> k, v;
    for (std::size_t i = 0; i < common_.size(); ++i) {
      Model::add_row(k, model_.k, common_[i], static_cast<std::int64_t>(i));
      Model::add_row(v, model_.v, common_[i], static_cast<std::int64_t>(i));
    }
    cache_.append(common_slot_, packed(k, key_heads), packed(v, key_heads));
    reserved_ = pages - cache_.free_pages();
  }

  void submit(Request request) { waiting_.push_back(std::move(request)); }
  [[nodiscard]] bool busy() const { return !waiting_.empty() || !running_.empty(); }

  void step() {
    admit();
    std::vector<std::int64_t> slots;
    std::vector<std::int32_t> starts{0};
    std::vector<float> q, k, v;
    for (Request& request : running_) {
      choose_tokens(request);
      for (std::size_t i = 0; i < request.step_tokens.size(); ++i) {
        const std::int64_t position = request.known + static_cast<std::int64_t>(i);
        Model::add_row(q, model_.q, request.step_tokens[i], position);
        Model::add_row(k, model_.k, request.step_tokens[i], position);
        Model::add_row(v, model_.v, request.step_tokens[i], position);
      }
      slots.push_back(request.slot);
      starts.push_back(starts.back() + static_cast<std::int32_t>(request.step_tokens.size()));
    }
    const ConstView all_starts(starts.data(), DType::i32, {std::ssize(starts)});
    cache_.append(slots, all_starts, packed(k, key_heads), packed(v, key_heads));
    const PagedKV::Batch batch = cache_.batch(slots);
    const auto begin = std::chrono::steady_clock::now();
    const Tensor out = attend_.forward({packed(q, heads), all_starts, batch.keys}).out;
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    most_pages_ = std::max(most_pages_, cache_.pages() - cache_.free_pages());
    ++steps_;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      const float* rows = out.data<float>().data() + static_cast<std::size_t>(starts[i]) *
                                                         static_cast<std::size_t>(heads * dim);
      take(running_[i], rows);
    }
    retire();
  }

  // Every row again, in one plain call over each sequence. How many rows there were.
  [[nodiscard]] std::int64_t check() const {
    std::int64_t rows = 0;
    for (const Request& request : finished_) {
      const auto length = static_cast<std::int64_t>(request.results.size()) / (heads * dim);
      std::vector<float> q, k, v;
      for (std::int64_t i = 0; i < length; ++i) {
        const Token token = request.tokens[static_cast<std::size_t>(i)];
        Model::add_row(q, model_.q, token, i);
        Model::add_row(k, model_.k, token, i);
        Model::add_row(v, model_.v, token, i);
      }
      const auto plain = [&](const std::vector<float>& of, std::int64_t width) {
        return ConstView(of.data(), DType::f32, {1, width, length, dim}, {0, dim, width * dim, 1});
      };
      const Tensor out =
          attend_.forward({plain(q, heads), plain(k, key_heads), plain(v, key_heads)}).out;
      const std::int64_t first = request.prompt > std::ssize(common_) ? first_row(request) : 0;
      for (std::int64_t i = first; i < length; ++i) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const float* seen = request.results.data() + (i * heads + h) * dim;
          const float* wanted = out.data<float>().data() + (h * length + i) * dim;
          if (std::memcmp(seen, wanted, sizeof(float) * dim) != 0) {
            std::printf("a row of position %ld has other bits than in a plain call\n",
                        static_cast<long>(i));
            std::exit(1);
          }
        }
        ++rows;
      }
    }
    return rows;
  }

  void report(std::int64_t checked) const {
    std::printf("%ld steps, %ld tokens written, %ld drafts kept of %ld\n", steps_, written_, kept_,
                drafted_);
    std::printf("%.0f tokens/s in attention alone, at most %ld of %ld pages in use\n",
                static_cast<double>(written_) / seconds_, most_pages_, cache_.pages());
    std::printf("%.1f GB/s of keys and values, %.0f %% of a loop that reads the pools\n",
                bytes_ / seconds_ / 1e9, 100 * bytes_ / seconds_ / read_speed());
    std::printf("%ld rows have the bits of plain calls\n", static_cast<long>(checked));
  }

 private:
  // Those of a shared prompt are not computed for each request.
  [[nodiscard]] std::int64_t first_row(const Request& request) const {
    const auto shared = std::ssize(common_);
    const bool shares = std::ssize(request.tokens) >= shared &&
                        std::equal(common_.begin(), common_.end(), request.tokens.begin());
    return shares ? shared : 0;
  }

  // New requests, as long as there is room for the longest that each can become.
  void admit() {
    while (!waiting_.empty()) {
      Request& next = waiting_.front();
      const std::int64_t need = next.most_tokens() / page_size + 2;
      if (reserved_ + need > cache_.pages()) return;
      reserved_ += need;
      const std::int64_t shared = first_row(next);
      next.slot = shared > 0 ? cache_.fork(common_slot_) : cache_.add();
      next.known = shared;
      next.results.resize(static_cast<std::size_t>(shared * heads * dim));
      running_.push_back(std::move(next));
      waiting_.pop_front();
    }
  }

  void choose_tokens(Request& request) {
    const auto known = static_cast<std::size_t>(request.known);
    request.step_tokens.assign(request.tokens.begin() + static_cast<std::ptrdiff_t>(known),
                               request.tokens.end());
    if (!request.writes()) {
      request.step_tokens.resize(
          std::min(request.step_tokens.size(), static_cast<std::size_t>(chunk)));
      return;
    }
    for (std::int64_t i = 0; i < drafts; ++i)
      request.step_tokens.push_back(static_cast<Token>(random_() % vocabulary));
  }

  // The step's rows: those of tokens that stand, and what the last of them asks for.
  void take(Request& request, const float* rows) {
    const auto known = request.known;
    const auto given = std::ssize(request.tokens) - known;  // tokens that stand before the step
    bytes_ +=
        static_cast<double>(cache_.length(request.slot) * key_heads * dim * 2) * sizeof(float);
    std::int64_t stands = std::min<std::int64_t>(given, std::ssize(request.step_tokens));
    if (request.writes()) {
      drafted_ += drafts;
      for (;;) {
        request.tokens.push_back(Model::next(rows + (stands - 1) * heads * dim));
        ++written_;
        if (request.done() || stands == std::ssize(request.step_tokens)) break;
        if (request.step_tokens[static_cast<std::size_t>(stands)] != request.tokens.back()) break;
        ++stands;
        ++kept_;
      }
    }
    request.results.insert(request.results.end(), rows, rows + stands * heads * dim);
    request.known += stands;
    cache_.trim(request.slot, request.known);
  }

  void retire() {
    for (Request& request : running_) {
      if (!request.done()) continue;
      cache_.free(request.slot);
      reserved_ -= request.most_tokens() / page_size + 2;
      finished_.push_back(request);
    }
    std::erase_if(running_, [](const Request& request) { return request.done(); });
  }

  // Bytes per second.
  [[nodiscard]] double read_speed() const {
    const auto words = static_cast<std::size_t>(k_pool_.count()) / 2;
    const auto* data = static_cast<const std::uint64_t*>(ConstView(k_pool_).data());
    double best = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const auto begin = std::chrono::steady_clock::now();
      std::uint64_t sums[8] = {};
      for (std::size_t i = 0; i + 8 <= words; i += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] ^= data[i + lane];
      volatile std::uint64_t used =
          sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
      (void)used;
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best = std::max(best, static_cast<double>(words) * 8 / seconds);
    }
    return best;
  }

  Model model_;
  Attention attend_ = causal();
  Tensor k_pool_, v_pool_;
  PagedKV cache_;
  std::vector<Token> common_;
  std::int64_t common_slot_ = 0, reserved_ = 0;
  std::deque<Request> waiting_;
  std::vector<Request> running_, finished_;
  std::mt19937 random_{7};
  std::int64_t steps_ = 0, written_ = 0, drafted_ = 0, kept_ = 0, most_pages_ = 0;
  double seconds_ = 0, bytes_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  const int requests = count > 1 ? std::atoi(arguments[1]) : 24;
  std::mt19937 random(3);
  const auto tokens = [&](std::size_t length) {
    std::vector<Token> made(length);
    for (Token& token : made) token = static_cast<Token>(random() % vocabulary);
    return made;
  };
  const std::vector<Token> common = tokens(600);
  Engine engine(1600, 64, common);
  for (int i = 0; i < requests; ++i) {
    Request request;
    if (i % 3 > 0) request.tokens = common;
    for (const Token token : tokens(10 + random() % 600)) request.tokens.push_back(token);
    request.prompt = std::ssize(request.tokens);
    request.wanted = 5 + static_cast<std::int64_t>(random() % 40);
    engine.submit(std::move(request));
  }
  while (engine.busy()) engine.step();
  engine.report(engine.check());
}
