// A PHY at a board's RGMII: bytes to and from its pins, at both edges of both clocks.
//
// To the board (rx), data and control change at the PHY's clock edges, and the clock follows after clock_delay. From
// the board (tx), they are sampled sample_delay after each edge of the board's clock, before other events of that time.
// At 1 Gb/s a byte takes one cycle, low nibble first; otherwise two, with the same nibble at both edges of a cycle.
// Between frames RXD shows link status, speed and full duplex.
// While the board holds the PHY in reset (its reset pin is low), RXD is 0 and frames of both directions are lost; the
// PHY's clock continues.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "model.h"

using Time = uint64_t;  // femtoseconds
constexpr Time kNever = ~Time(0);

// Edges of a clock: edge n, from 0 and rising first, is at phase + n · period / 2, rounded down to fs.
struct Edges {
  uint64_t numerator = 0, denominator = 1;  // of the period, in fs
  Time phase = 0;
  uint64_t number = 0;
  Time at(uint64_t n) const { return phase + Time((unsigned __int128)numerator * n / (2 * denominator)); }
  Time next() const { return at(number); }
  bool rising() const { return number % 2 == 0; }
};

struct ToBoard {
  Time start;                   // earliest start
  unsigned gap;                 // least number of idle bytes after the previous frame
  int64_t error;                // index of the byte with RX_ER, or -1
  std::vector<uint8_t> bytes;   // with preamble and FCS
};

struct FromBoard {
  Time end;                     // of the last byte
  uint64_t gap;                 // bytes without a frame before it
  bool error;                   // TX_ER was set
  std::vector<uint8_t> bytes;
};

class Phy {
 public:
  int rx_clk, rx_ctl, rx_data, tx_clk, tx_ctl, tx_data;  // ports
  int reset = -1;  // port; -1: none
  Edges clock;
  Time clock_delay, data_delay, sample_delay;
  int speed = 1000;
  bool up = true;

  std::deque<ToBoard> queue;
  std::vector<FromBoard> frames;
  uint64_t lost_to_board = 0, lost_from_board = 0;  // frames lost because the PHY was in reset

  Time next_clock() const { return clock.next() + clock_delay; }
  Time next_data() const { return data_.at(data_.number) + data_delay; }
  Time next_sample() const { return samples_.empty() ? kNever : samples_.front().time; }
  bool idle() const { return queue.empty() && !sending_ && !receiving_; }

  void start() { data_ = clock; }
  void enqueue(ToBoard frame);  // in order of start
  // Carry out the due edge of the PHY's receive clock.
  void drive_clock(Model &model) { model.set(rx_clk, clock.rising()), ++clock.number; }
  void drive_data(Model &model);
  void sample(const Model &model);
  void watch_reset(const Model &model) { held_ = reset >= 0 && !model.get(reset); }
  // Call after the board was evaluated at ``now``; before_ctl, before_data: its tx pins before that.
  void watch(const Model &model, Time now, uint64_t before_ctl, uint64_t before_data);

 private:
  struct Sample { Time time, edge; bool rising; };
  Edges data_;
  bool held_ = false, losing_ = false;  // the PHY is in reset; a frame from the board is being lost
  bool sending_ = false, nibble_ = false, valid_ = false, failed_ = false;
  uint64_t gap_ = 1 << 20;  // bytes since the last frame sent to the board
  size_t position_ = 0;
  uint8_t byte_ = 0;

  uint64_t last_clk_ = 0, tx_gap_ = 0;
  std::deque<Sample> samples_;
  Time last_edge_ = 0, half_ = 0;
  bool receiving_ = false, low_seen_ = false, enable_ = false, tx_error_ = false;
  uint8_t low_ = 0, byte_high_ = 0;
  Time last_byte_ = 0;
  std::vector<uint8_t> bytes_;

  bool gigabit() const { return speed == 1000; }
  void lose_due();
  void next_byte();
  void take(const Sample &sample, uint64_t ctl, uint64_t data);
  void take_byte(const Sample &sample, bool enable, bool error, uint8_t byte);
};
