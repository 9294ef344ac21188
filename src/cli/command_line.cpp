// The only file that knows CLI11. In: a command line. Out: a request to a subcommand. Read
// parse_and_run, the last one, first.
#include "cli/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dump.h"
#include "cli/commands.h"
#include "cli/demo_variants.h"
#include "cli/order_option.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

constexpr const char* examples = R"text(Examples:
  treadle info --json
  treadle explain "score + slopes[h] * (kv - q)" --mask "q >= kv" --capture slopes:f32:1
  treadle mask "q >= kv && q - kv < 256" --q 1024 -o window.png
  treadle plan "q >= kv" --q 1048576 --heads 32/8 --ranks 64
  treadle demo --length 256 --threads 1
  treadle bench --case 'layout-*'
  treadle cache --prune

`treadle SUBCOMMAND --help` shows its options.
TREADLE_DUMP=graph prints what each stage of the compiler made.)text";

// Without a description of its own, help says "INT" instead of the whole range.
template <class T>
CLI::Validator between(T low, T high) {
  CLI::Validator range = CLI::Range(low, high);
  range.description("");
  return range;
}

void add_info(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "info", "Versions, the machine and its vector extensions: what a bug report needs");
  command->footer("Example:\n  treadle info --json");
  auto request = std::make_shared<InfoRequest>();
  command->add_flag("--json", request->json, "Print a list of {about, name, value}");
  command->callback([request] { info(*request); });
}

void add_explain(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "explain", "What the compiler makes of a score mod and a mask: graphs, derivative, hashes");
  command->footer(
      "Example:\n"
      "  treadle explain \"score + slopes[h] * (kv - q)\" --mask \"q >= kv\" \\\n"
      "      --capture slopes:f32:1 --gradient slopes\n"
      "  treadle explain --mask \"q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)\" --q 4096\n\n"
      "A SCORE that begins with a minus goes last, after --.");
  auto request = std::make_shared<ExplainRequest>();
  command->add_option(
      "SCORE", request->score,
      "The new score, from score, b, h, q, kv and captures; \"score\" if not given");
  command->add_option(
      "--mask", request->mask,
      "Which pairs see each other, from b, h, q, kv and captures; all if not given");
  // One value each: otherwise an option would swallow the SCORE that follows it.
  command
      ->add_option(
          "--capture", request->captures,
          "A buffer that the mods read, as name:dtype:rank, where rank 0 is a number, or with its "
          "values, as `treadle mask` takes them. Repeatable")
      ->allow_extra_args(false);
  command
      ->add_option("--gradient", request->gradients,
                   "The name of a capture whose gradient is wanted. Repeatable")
      ->allow_extra_args(false);
  const CLI::Validator a_length = between(1, std::numeric_limits<int>::max());
  CLI::Option* queries =
      command
          ->add_option(
              "--q", request->queries,
              "Queries: also print how they are put into tiles, and what else was looked at")
          ->check(a_length);
  command->add_option("--kv", request->keys, "Keys, if not as many as queries")
      ->check(a_length)
      ->needs(queries);
  CLI::Option* json =
      command->add_flag("--json", request->json, "Print a list of {stage, text, hash}");
  CLI::Option* assembly = command->add_flag("--asm", request->assembly.wanted,
                                            "Print the forward kernels as assembly instead");
  assembly->excludes(json);
  assembly->excludes(queries);
  CLI::Option* kernels = command->add_flag(
      "--kernels", request->kernels,
      "Also compile the forward kernels: bytes of code, spills, how long it took");
  kernels->excludes(json);
  CLI::Option* html =
      command->add_option("--html", request->html, "Write all of it into this file, as a page");
  html->excludes(json);
  html->excludes(assembly);
  kernels->excludes(assembly);
  command->add_option("--target", request->target,
                      "The processor that --asm, --q or --kernels is for; this one if not given");
  CLI::Option* dim = command
                         ->add_option("--dim", request->assembly.dim,
                                      "Head dim of the kernels of --asm, --kernels and --html")
                         ->check(between(1, 4096))
                         ->capture_default_str();
  command->callback([request, dim] {
    const bool kernels = request->assembly.wanted || request->kernels || !request->html.empty();
    if (dim->count() != 0 && !kernels)
      throw CLI::RequiresError("--dim", "--asm, --kernels or --html");
    explain(*request);
  });
}

void add_mask(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "mask", "Draws a mask, and reports the work that it leaves: pairs, runs, square blocks");
  command->footer(
      "Example:\n"
      "  treadle mask \"q >= kv && q - kv < 256\" --q 1024\n"
      "  treadle mask \"ids[q] == ids[kv]\" --capture ids:i32=0*100,1*28,2*128 --q 256 -o ids.png\n"
      "  treadle mask --pattern fixed --param window=128 --q 1024 --order identity --tile 32\n\n"
      "A pattern and a MASK together show what both show. Captures have values here:\n"
      "name:dtype=values or name:dtype:shape=values, where 7*100 is a hundred times 7 and @FILE\n"
      "the numbers of a file; a single number is a scalar.");
  auto request = std::make_shared<MaskRequest>();
  const CLI::Validator a_length = between(1, std::numeric_limits<int>::max());
  const CLI::Validator a_number = between(0, std::numeric_limits<int>::max());
  command->add_option("MASK", request->expression,
                      "Which pairs see each other, from b, h, q, kv and captures");
  command->add_option("--pattern", request->pattern, "A mask by its name");
  // One value each: otherwise an option would swallow the MASK that follows it.
  command
      ->add_option("--param", request->parameters,
                   "A parameter of the pattern, as name=number or name=list. Repeatable")
      ->allow_extra_args(false);
  command->add_flag("--list", request->list, "Show the patterns and their parameters");
  command->add_option("--q", request->queries, "Queries")->check(a_length);
  command->add_option("--kv", request->keys, "Keys, if not as many as queries")->check(a_length);
  command->add_option("--batch", request->batch, "Which batch to look at")
      ->check(a_number)
      ->capture_default_str();
  command->add_option("--head", request->head, "Which head to look at")
      ->check(a_number)
      ->capture_default_str();
  command->add_option("--capture", request->captures, "A buffer that the mask reads. Repeatable")
      ->allow_extra_args(false);
  command->add_option(
      "--order", request->order,
      fmt::format("Which queries share a tile: {}; or auto, the default: as calls choose "
                  "it, in a pass for each term of the mask",
                  order_forms));
  command
      ->add_option("--tile", request->tile,
                   "Queries in a tile, 48 if not given; without --order they are in their order")
      ->check(a_length);
  command->add_option("-o,--output", request->output, "Also draw into this file, .png or .svg");
  command->add_flag("--json", request->json, "Print numbers, as a list of one object; no drawing");
  command->callback([request] { mask(*request); });
}

void add_plan(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "plan",
      "How a call would be spread over ranks: balance, bytes, messages, time; no cluster needed");
  command->footer(
      "Example:\n"
      "  treadle plan \"q >= kv\" --q 1048576 --heads 32/8 --ranks 64\n"
      "  treadle plan \"q >= kv && ids[q] == ids[kv]\" --capture ids:i32=@ids.txt --q 65536 \\\n"
      "      --ranks 8 -o plan.svg\n\n"
      "A pattern and a MASK together show what both show; captures have values, as those of\n"
      "`treadle mask`. Tiles are those of this machine.");
  auto request = std::make_shared<PlanRequest>();
  const CLI::Validator a_length = between(1, std::numeric_limits<int>::max());
  const CLI::Validator a_speed = between(1e-6, 1e9);
  command->add_option("MASK", request->expression,
                      "Which pairs see each other, from b, h, q, kv and captures");
  command->add_option("--pattern", request->pattern, "A mask by its name");
  // One value each: otherwise an option would swallow the MASK that follows it.
  command
      ->add_option("--param", request->parameters,
                   "A parameter of the pattern, as name=number or name=list. Repeatable")
      ->allow_extra_args(false);
  command->add_option("--capture", request->captures, "A buffer that the mask reads. Repeatable")
      ->allow_extra_args(false);
  command->add_option("--q", request->queries, "Queries of all ranks")->check(a_length);
  command->add_option("--kv", request->keys, "Keys of all ranks, if not as many as queries")
      ->check(a_length);
  command->add_option("--ranks", request->ranks, "How many ranks, each with equally many rows")
      ->check(between(1, 1 << 16));
  command->add_option("--batch", request->batch, "Sequences")
      ->check(a_length)
      ->capture_default_str();
  command->add_option("--heads", request->heads, "Heads, or heads of queries and keys, as 32/8")
      ->capture_default_str();
  command->add_option("--dim", request->dim, "Numbers in a query, a key and a value")
      ->check(between(1, 4096))
      ->capture_default_str();
  command->add_option("--dtype", request->dtype, "Element type of q, k and v")
      ->capture_default_str();
  command->add_option("--gigabits", request->gigabits, "Per second, of each rank's network")
      ->check(a_speed)
      ->capture_default_str();
  command->add_option("--teraflops", request->teraflops, "Per second, of each rank")
      ->check(a_speed)
      ->capture_default_str();
  command
      ->add_option("--excess", request->excess,
                   "How much more than its share a rank may keep for itself")
      ->check(between(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--head-groups", request->head_groups,
                   "Groups of ranks with key heads of their own; if not given, what takes least "
                   "time")
      ->check(a_length);
  command->add_flag("--per-rank", request->per_rank,
                    "Sums of gradients rank by rank: fewer bytes, bits depend on the ranks");
  command->add_option("-o,--output", request->output,
                      "Draw who computes what into this file, .png or .svg");
  command->add_flag("--json", request->json, "Print a list of objects, one per candidate");
  command->callback([request] { plan(*request); });
}

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const Variant& variant : demo_variants()) names.push_back(variant.name);
  return names;
}

void add_demo(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "demo", "Runs variants of attention, forward and backward: times, and errors against f64");
  command->footer("Example:\n  treadle demo --length 256 --variant causal --variant alibi");
  auto request = std::make_shared<DemoRequest>();
  const CLI::Validator a_length = between(1, std::numeric_limits<int>::max());
  const auto length = [&](const char* name, std::int64_t& value, const char* what) {
    return command->add_option(name, value, what)->check(a_length);
  };
  length("--batch", request->sizes.batch, "Sequences")->capture_default_str();
  length("--heads", request->sizes.heads, "Heads of the queries")->capture_default_str();
  length("--length", request->sizes.keys, "Keys, and queries")->capture_default_str();
  length("--queries", request->queries, "Queries, if not as many as keys");
  length("--dim", request->sizes.dim, "Numbers in a query, a key and a value")
      ->capture_default_str();
  command->add_option("--threads", request->threads, "Threads; 0 is one per core")
      ->check(between(0, 4096))
      ->capture_default_str();
  command->add_option("--tolerance", request->tolerance, "A larger error than this is a failure")
      ->check(between(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--variant", request->variants, "One of them instead of all. Repeatable")
      ->check(CLI::IsMember(variant_names()))
      ->allow_extra_args(false);
  command->add_flag("--json", request->json, "Print a list of objects, one per variant");
  command->callback([request] { demo(*request); });
}

void add_bench(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("bench", "Measures: times, sizes, shares of what the machine can do");
  command->footer("Example:\n  treadle bench --case 'layout-*'");
  auto request = std::make_shared<BenchRequest>();
  command->add_option("--case", request->pattern, "Only cases of this name; * and ? match")
      ->capture_default_str();
  command->add_option("--threads", request->threads, "Threads; 0 is one per core")
      ->check(between(0, 4096))
      ->capture_default_str();
  command->add_flag("--list", request->list, "Print the names of the cases and stop");
  command->add_flag("--json", request->json, "Print a list of objects, one per case");
  command->callback([request] { bench(*request); });
}

void add_cache(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("cache", "The compiled kernels on disk: where, how many, how much");
  command->footer(
      "Example:\n  treadle cache --prune\n\n"
      "TREADLE_CACHE_DIR is the folder, TREADLE_CACHE_SIZE the limit: 256M if not given.");
  auto request = std::make_shared<CacheRequest>();
  CLI::Option* prune = command->add_flag("--prune", request->prune,
                                         "Remove what is old, and what is beyond the limit, now");
  command->add_flag("--clear", request->clear, "Remove all kernels")->excludes(prune);
  command->add_flag("--json", request->json, "Print numbers, as a list of one object");
  command->callback([request] { cache(*request); });
}

// Throws CLI::Error, also for --help, and whatever the subcommand throws.
void parse_and_run(CLI::App& program, int argc, const char* const* argv) {
  program.set_version_flag("--version", fmt::format("treadle {}", version()));
  program.footer(examples);
  add_info(program);
  add_explain(program);
  add_mask(program);
  add_plan(program);
  add_demo(program);
  add_bench(program);
  add_cache(program);
  // A wrong name in TREADLE_DUMP is an error even where no stage would look at it.
  program.parse_complete_callback([] { (void)base::dump_wanted(base::Dump::graph); });
  program.parse(argc, argv);
  // Asked only now: require_subcommand() would call a misspelt subcommand a missing one.
  if (program.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App program("Treadle, a compiler for attention with your own score and mask.", "treadle");
  try {
    parse_and_run(program, argc, argv);
    return 0;
  } catch (const CLI::Error& error) {  // --help is one too
    return program.exit(error);
  }
}

}  // namespace treadle::cli
