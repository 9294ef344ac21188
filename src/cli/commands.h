// The subcommands: what each can be asked, and the call that answers on stdout. What goes wrong is
// thrown as treadle::Error. Requests come from command_line.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/assembly.h"
#include "cli/demo_variants.h"

namespace treadle::cli {

struct InfoRequest {
  bool json = false;
};

struct ExplainRequest {
  std::string score = "score";
  std::string mask = "true";
  std::vector<std::string> captures;  // name:dtype:rank or name:dtype=values
  std::vector<std::string> gradients;
  std::int64_t queries = 0, keys = 0;  // 0: not given
  bool json = false;
  std::string target;    // empty: this machine's own
  bool kernels = false;  // their sizes and what they cost to make
  std::string html;      // a file for all of it as a page; empty: none
  AssemblyRequest assembly;
};

struct MaskRequest {
  std::string expression;
  std::string pattern;
  std::vector<std::string> parameters, captures;
  std::int64_t queries = 0, keys = 0, batch = 0, head = 0;
  std::int64_t tile = 0;  // 0: not given
  std::string order;
  std::string output;
  bool list = false, json = false;
};

struct PlanRequest {
  std::string expression;
  std::string pattern;
  std::vector<std::string> parameters, captures;
  std::int64_t queries = 0, keys = 0, batch = 1;
  std::string heads = "8";  // of queries, or of queries and keys: 32/8
  std::string dtype = "bf16";
  std::int64_t dim = 128;
  int ranks = 0;
  int head_groups = 0;  // 0: what takes least time
  double gigabits = 25, teraflops = 2, excess = 0.02;
  bool per_rank = false;  // sums
  std::string output;
  bool json = false;
};

struct DemoRequest {
  Sizes sizes;
  std::int64_t queries = 0;  // 0: as many as keys
  int threads = 0;           // 0: one per core
  double tolerance = 1e-4;
  std::vector<std::string> variants;  // none: all
  bool json = false;
};

struct BenchRequest {
  std::string pattern = "*";
  int threads = 0;  // 0: one per core
  bool list = false, json = false;
};

struct CacheRequest {
  bool prune = false, clear = false, json = false;
};

void info(const InfoRequest& request);
void explain(const ExplainRequest& request);
void mask(const MaskRequest& request);
void plan(const PlanRequest& request);
void demo(DemoRequest request);
void bench(const BenchRequest& request);
void cache(const CacheRequest& request);

}  // namespace treadle::cli
