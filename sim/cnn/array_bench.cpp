// Pairs of binary32 numbers through a model with ports a, b, valid and product, sum; a row of pairs a cycle.
// Arguments: file of the pairs (all a, then all b), how often, file for the results of the last time (all products,
// then all sums). Prints the seconds of processor time that the simulation has taken.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "Vpairs.h"
#include "verilated.h"

namespace {

constexpr size_t kProductLatency = 6, kSumLatency = 7;  // a test compares what they give

std::vector<uint32_t> load(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) exit(1);
  fseek(file, 0, SEEK_END);
  std::vector<uint32_t> words(ftell(file) / 4);
  rewind(file);
  if (fread(words.data(), 4, words.size(), file) != words.size()) exit(1);
  fclose(file);
  return words;
}

}  // namespace

// An operator that is Verilated apart is none that may be.
extern "C" void fanin_block_failed(const char *text) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) return 1;
  const std::vector<uint32_t> pairs = load(argv[1]);
  Vpairs top;
  const size_t bytes = sizeof top.a, lanes = bytes / 4, rows = pairs.size() / 2 / lanes;
  std::vector<uint32_t> results(pairs.size());
  uint32_t *const products = results.data(), *const sums = products + rows * lanes;
  const std::clock_t begin = std::clock();
  for (int left = atoi(argv[2]); left > 0; --left)
    for (size_t cycle = 0; cycle < rows + kSumLatency; ++cycle) {
      top.valid = cycle < rows;
      if (top.valid) {
        memcpy(&top.a, &pairs[cycle * lanes], bytes);
        memcpy(&top.b, &pairs[(rows + cycle) * lanes], bytes);
      }
      top.clk = 0, top.eval(), top.clk = 1, top.eval();
      const size_t edges = cycle + 1;  // since the first row was offered
      if (edges >= kProductLatency && edges - kProductLatency < rows)
        memcpy(products + (edges - kProductLatency) * lanes, &top.product, bytes);
      if (edges >= kSumLatency && edges - kSumLatency < rows)
        memcpy(sums + (edges - kSumLatency) * lanes, &top.sum, bytes);
    }
  printf("%.6f\n", double(std::clock() - begin) / CLOCKS_PER_SEC);
  FILE *file = fopen(argv[3], "wb");
  return !file || fwrite(results.data(), 4, results.size(), file) != results.size() || fclose(file);
}
