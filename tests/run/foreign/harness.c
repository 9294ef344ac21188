// A program without a library: calls a forward kernel for a causal mask and ALiBi, works the same out plainly, and
// exits with 0 if the two agree. DIM, VALUE_DIM and WIDTH come from the test that made the kernel.
typedef long long int64;

struct TileArgs {
  const void *keys, *values;
  const int* indices;
  int64 count;
  const void* queries;
  const int* rows;
  int64 active, b, h;
  const int64 *score_words, *mask_words;
  void *staged, *frame;
  const void* dropout;
  int64* poisoned;
};

struct BlockArgs {
  struct TileArgs tile;
  void *scores, *sums, *maximum, *weight;
  const int *chunk_ends;
  long chunks;
  void* fetch;
};

void kernel(const struct BlockArgs*);

enum { KEYS = 37, FIRST_QUERY = 20 };

static float keys[KEYS * DIM], values[KEYS * VALUE_DIM], queries[DIM * WIDTH];
static float scores[128 * WIDTH], sums[VALUE_DIM * WIDTH], maximum[WIDTH], weight[WIDTH];
static int indices[KEYS], rows[WIDTH];
static float slopes[2] = {0.5f, 0.25f};

static unsigned state = 12345;
static float random_number(void) {
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static double power_of_two(double x) {
  double result = 1, term = 1;
  const double step = x / 64 * 0.69314718055994531;
  for (int i = 1; i < 20; ++i) result += term *= step / i;
  for (int i = 0; i < 6; ++i) result *= result;
  return result;
}

static int differs(double a, double b) { return !(a - b < 1e-5 && b - a < 1e-5); }

static int check(void) {
  const double log2e = 1.4426950408889634;
  for (int i = 0; i < WIDTH; ++i) {
    double total = 0, out[VALUE_DIM] = {0};
    for (int k = 0; k < KEYS && k <= rows[i]; ++k) {
      double score = 0;
      for (int d = 0; d < DIM; ++d) score += (double)keys[k * DIM + d] * queries[d * WIDTH + i];
      score += 0.25 * (k - rows[i]) * log2e;
      const double p = power_of_two(score);
      total += p;
      for (int d = 0; d < VALUE_DIM; ++d) out[d] += p * values[k * VALUE_DIM + d];
    }
    for (int d = 0; d < VALUE_DIM; ++d)
      if (differs(out[d] / total, (double)sums[d * WIDTH + i] / weight[i])) return 1;
  }
  return 0;
}

static _Noreturn void leave(int status) {
  register long x0 __asm__("x0") = status;
  register long x8 __asm__("x8") = 93;  // exit
  __asm__ volatile("svc 0" : : "r"(x0), "r"(x8) : "memory");
  __builtin_unreachable();
}

void* memset(void* to, int value, unsigned long count) {
  for (unsigned long i = 0; i < count; ++i) ((volatile char*)to)[i] = (char)value;
  return to;
}

void _start(void) {
  const int64 score_words[] = {(int64)slopes, 2, 1};
  int64 poisoned = 0;
  for (int i = 0; i < KEYS * DIM; ++i) keys[i] = random_number();
  for (int i = 0; i < KEYS * VALUE_DIM; ++i) values[i] = random_number();
  for (int i = 0; i < DIM * WIDTH; ++i) queries[i] = random_number();
  for (int i = 0; i < KEYS; ++i) indices[i] = i;
  for (int i = 0; i < WIDTH; ++i) {
    rows[i] = FIRST_QUERY + i;
    maximum[i] = -__builtin_inff();
  }
  const struct BlockArgs args = {
      {keys, values, indices, KEYS, queries, rows, WIDTH, 0, 1, score_words, 0, 0, 0, 0, &poisoned},
      scores, sums, maximum, weight};
  kernel(&args);
  leave(poisoned != 0 ? 2 : check());
}
