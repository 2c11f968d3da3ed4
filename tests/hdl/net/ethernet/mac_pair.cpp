// Two MACs on one line: frames from A's core to B's, which sends them back. Each line and each core has a clock of
// its own. Arguments: seed, frames, longest frame, then the four clocks' cycles in femtoseconds: A's core, B's core,
// A's transmit clock (B's receive clock), B's. Prints what A and B have counted.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

namespace {

[[noreturn]] void fail(uint64_t frame, const char *what) {
  fprintf(stderr, "frame %llu: %s\n", static_cast<unsigned long long>(frame), what);
  exit(1);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ >> 32;
  }
  uint32_t below(uint32_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

struct Word {
  uint32_t data;
  uint8_t keep;
  bool last;
};

struct Clock {
  uint64_t period, next;
  bool level = false;
};

constexpr uint64_t kReset = 400;      // edges of the clocks
constexpr uint64_t kStuck = 1000000;  // edges without a word
constexpr uint64_t kQuiet = 2000;     // cycles of A's core behind the last frame, in which nothing may come
constexpr int kEvents = 9;
const char *const kNames[kEvents] = {"received", "bad_fcs", "runt",    "long",    "damaged",
                                     "dropped",  "sent",    "refused", "underrun"};

struct Core {  // what stands at a MAC's core side
  Vtop *mac;
  uint64_t counts[kEvents] = {};

  void count() {
    for (int n = 0; n < kEvents; ++n) counts[n] += mac->events >> n & 1;
  }
  void offer(const Word &word) {
    mac->tx_tvalid = 1, mac->tx_tdata = word.data, mac->tx_tkeep = word.keep, mac->tx_tlast = word.last;
  }
};

class Frames {  // the same sequence for who sends and who checks
 public:
  Frames(uint64_t seed, uint32_t longest) : random_(seed), longest_(longest) {}
  const std::vector<uint8_t> &next() {
    const uint32_t kind = random_.below(64);
    frame_.resize(kind == 0 ? 1 + random_.below(longest_) : kind < 8 ? 1 + random_.below(60) : 60 + random_.below(20));
    for (auto &byte : frame_) byte = random_.next();
    return frame_;
  }

 private:
  Random random_;
  uint32_t longest_;
  std::vector<uint8_t> frame_;
};

Word word_of(const std::vector<uint8_t> &frame, size_t at) {
  Word word{0, 0, at + 4 >= frame.size()};
  for (size_t n = 0; n < 4 && at + n < frame.size(); ++n)
    word.data |= uint32_t{frame[at + n]} << 8 * n, word.keep |= 1 << n;
  return word;
}

struct Sender {  // at A: with pauses between frames, so that the line is busy for 49 of 50 cycles, and within
  Core core;
  Frames frames;
  Random random;
  uint64_t left, free_at = 0, now = 0, cycle;
  std::vector<uint8_t> frame;
  size_t at = 0;

  void step(bool taken) {
    now += cycle;
    if (taken) {
      core.mac->tx_tvalid = 0;
      at += 4;
      if (at >= frame.size()) frame.clear();
    }
    if (core.mac->tx_tvalid || !random.below(8)) return;
    if (frame.empty()) {
      if (!left || now < free_at) return;
      frame = frames.next();
      at = 0, --left;
      const uint64_t bytes = (frame.size() < 60 ? 60 : frame.size()) + 24;
      free_at += random.below(2 * 51 * bytes / 50 + 1) * 8000000ull;
      if (free_at + 20000000000ull < now) free_at = now;
    }
    core.offer(word_of(frame, at));
  }
};

struct Checker {  // at A: each frame as it was sent, with its padding
  Frames frames;
  uint64_t number = 0;
  std::vector<uint8_t> expected;
  size_t at = 0;

  void take(Word word) {
    if (!at) {
      expected = frames.next();
      if (expected.size() < 60) expected.resize(60);
    }
    const Word right = word_of(expected, at);
    for (int n = 0; n < 4; ++n)
      if (!(word.keep >> n & 1)) word.data &= ~(0xffu << 8 * n);
    if (word.data != right.data || word.keep != right.keep || word.last != right.last) fail(number, "changed or lost");
    at = word.last ? 0 : at + 4;
    number += word.last;
  }
};

struct Echo {  // at B
  Core core;
  Random random;
  std::deque<Word> words;

  void step(bool taken, bool came, const Word &word) {
    Vtop &mac = *core.mac;
    if (came) words.push_back(word);
    if (taken) mac.tx_tvalid = 0;
    if (!mac.tx_tvalid && !words.empty() && random.below(8)) core.offer(words.front()), words.pop_front();
  }
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 8) return 2;
  const uint64_t seed = strtoull(argv[1], nullptr, 0), count = strtoull(argv[2], nullptr, 0);
  const uint32_t longest = atoi(argv[3]);
  Random random(seed + 1);
  Clock clocks[4];
  for (int n = 0; n < 4; ++n) {
    clocks[n].period = strtoull(argv[4 + n], nullptr, 0);
    clocks[n].next = 1 + (uint64_t{random.next()} << 16) % clocks[n].period;
  }
  VerilatedContext context_a, context_b;
  auto model_a = std::make_unique<Vtop>(&context_a, "a"), model_b = std::make_unique<Vtop>(&context_b, "b");
  Vtop &a = *model_a, &b = *model_b;
  Sender sender{{&a}, Frames(seed, longest), Random(seed + 2), count, 0, 0, clocks[0].period, {}, 0};
  Checker checker{Frames(seed, longest), 0, {}, 0};
  Echo echo{{&b}, Random(seed + 3), {}};
  for (Vtop *mac : {&a, &b}) mac->rst = mac->rx_rst = mac->tx_rst = 1, mac->gmii_rx_enable = mac->gmii_tx_enable = 1;
  uint64_t edges = 0, moved = 0, quiet = 0;
  while (quiet < kQuiet) {
    int which = 0;
    for (int n = 1; n < 4; ++n)
      if (clocks[n].next < clocks[which].next) which = n;
    Clock &clock = clocks[which];
    clock.level = !clock.level;
    clock.next += clock.level ? clock.period / 2 : clock.period - clock.period / 2;
    if (++edges == kReset)
      for (Vtop *mac : {&a, &b}) mac->rst = mac->rx_rst = mac->tx_rst = 0;
    switch (which) {
      case 0: {
        const bool taken = a.tx_tvalid && a.tx_tready, came = a.rx_tvalid && a.rx_tready;
        if (clock.level && came) checker.take({a.rx_tdata, a.rx_tkeep, static_cast<bool>(a.rx_tlast)});
        a.clk = clock.level, a.eval();
        if (!clock.level || edges < kReset) break;
        sender.step(taken), sender.core.count();
        a.rx_tready = random.below(8) != 0;
        if (came) moved = edges;
        if (edges - moved > kStuck) fail(checker.number, "nothing moves any more");
        if (checker.number >= count) ++quiet;
        break;
      }
      case 1: {
        const bool taken = b.tx_tvalid && b.tx_tready, came = b.rx_tvalid && b.rx_tready;
        const Word word{b.rx_tdata, b.rx_tkeep, static_cast<bool>(b.rx_tlast)};
        b.clk = clock.level, b.eval();
        if (!clock.level || edges < kReset) break;
        echo.step(taken, came, word), echo.core.count();
        b.rx_tready = echo.words.size() < 16 && random.below(8);
        break;
      }
      case 2:
        if (clock.level) b.gmii_rx = a.gmii_tx;
        a.tx_clk = b.rx_clk = clock.level, a.eval(), b.eval();
        break;
      default:
        if (clock.level) a.gmii_rx = b.gmii_tx;
        b.tx_clk = a.rx_clk = clock.level, a.eval(), b.eval();
    }
  }
  for (const Core *core : {&sender.core, &echo.core})
    for (int n = 0; n < kEvents; ++n)
      printf("%s %llu\n", kNames[n], static_cast<unsigned long long>(core->counts[n]));
  return 0;
}
