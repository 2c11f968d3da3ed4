#include "phy.h"

#include <algorithm>

namespace {
uint8_t status(bool up, int speed) {
  const uint8_t rate = speed == 1000 ? 2 : speed == 100 ? 1 : 0;
  return up | rate << 1 | 1 << 3;  // bit 3: full duplex
}
}  // namespace

void Phy::enqueue(ToBoard frame) {
  const auto later = [](Time start, const ToBoard &other) { return start < other.start; };
  const auto place = std::upper_bound(queue.begin() + sending_, queue.end(), frame.start, later);
  queue.insert(place, std::move(frame));
}

// In reset: lose the frame that is being sent to the board, and the frames that are due.
void Phy::lose_due() {
  const Time now = data_.at(data_.number);
  while (!queue.empty() && (sending_ || queue.front().start <= now)) {
    queue.pop_front();
    sending_ = false, ++lost_to_board;
  }
}

void Phy::next_byte() {
  if (held_) lose_due();
  if (sending_ && ++position_ == queue.front().bytes.size()) {
    queue.pop_front();
    sending_ = false, gap_ = 0;
  }
  if (!sending_) {
    const Time now = data_.at(data_.number);
    if (!queue.empty() && gap_ >= queue.front().gap && queue.front().start <= now && up) {
      sending_ = true, position_ = 0;
    } else {
      ++gap_;
    }
  }
  valid_ = sending_;
  failed_ = sending_ && queue.front().error == int64_t(position_);
  byte_ = sending_ ? queue.front().bytes[position_] : 0;
}

void Phy::drive_data(Model &model) {
  const bool rising = data_.rising();
  if (rising) {
    if (gigabit() || !nibble_) next_byte();
    if (!gigabit()) nibble_ = !nibble_;
  }
  ++data_.number;
  const bool high = gigabit() ? !rising : !nibble_;  // nibble_ already refers to the next cycle
  const uint8_t nibble = high ? byte_ >> 4 : byte_ & 15;
  model.set(rx_data, valid_ ? nibble : held_ ? 0 : status(up, speed));
  model.set(rx_ctl, rising ? valid_ : valid_ != failed_);
}

void Phy::watch(const Model &model, Time now, uint64_t before_ctl, uint64_t before_data) {
  const uint64_t clk = model.get(tx_clk);
  if (clk == last_clk_) return;
  last_clk_ = clk;
  const Sample sample{now + sample_delay, now, clk != 0};
  half_ = now - last_edge_, last_edge_ = now;
  if (sample_delay)
    samples_.push_back(sample);
  else
    take(sample, before_ctl, before_data);
}

void Phy::sample(const Model &model) {
  const Sample due = samples_.front();
  samples_.pop_front();
  take(due, model.get(tx_ctl), model.get(tx_data));
}

void Phy::take(const Sample &sample, uint64_t ctl, uint64_t data) {
  if (sample.rising) {
    enable_ = ctl != 0;
    if (gigabit())
      low_ = data & 15;
    else if (!low_seen_ || !enable_)
      low_ = data & 15;
    else
      byte_high_ = data & 15;
    return;
  }
  const bool error = (ctl != 0) != enable_;
  if (gigabit()) {
    take_byte(sample, enable_, error, low_ | (data & 15) << 4);
  } else if (!enable_) {
    low_seen_ = false;
    take_byte(sample, false, false, 0);
  } else if (!low_seen_) {
    low_seen_ = true;
    tx_error_ |= error;
  } else {
    low_seen_ = false;
    take_byte(sample, true, error, low_ | byte_high_ << 4);
  }
}

void Phy::take_byte(const Sample &sample, bool enable, bool error, uint8_t byte) {
  if (enable && (held_ || losing_)) {  // also the rest of a frame after a reset
    lost_from_board += !losing_;
    losing_ = true, receiving_ = tx_error_ = false;
    bytes_.clear();
    return;
  }
  losing_ = false;
  if (enable) {
    receiving_ = true;
    tx_error_ |= error;
    bytes_.push_back(byte);
    last_byte_ = sample.edge + half_;
    return;
  }
  if (receiving_) {
    frames.push_back({last_byte_, tx_gap_, tx_error_, std::move(bytes_)});
    bytes_.clear();
    receiving_ = tx_error_ = false;
    tx_gap_ = 0;
  }
  ++tx_gap_;
}
