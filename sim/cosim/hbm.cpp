// Memory ports whose bytes lie in pseudo-channels of HBM: when a word is there, by fanin/golden/hbm.py's rules.
//
// fanin_memory (parts.sv) tells which bursts have been asked for, and asks before each rising edge whether its
// next word is there. No rule and no number is this file's own: Python hands them over in fanin/hbm.py's order.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kLongAgo = -(int64_t{1} << 60);
constexpr int64_t kBlockBytes = 32;
constexpr int64_t kStackChannels = 16;

struct Timing {  // fanin.hbm.Hbm.numbers
  int64_t period_ps, access, same_group, cas_latency, activate_to_read, activate_to_precharge, precharge,
      read_to_precharge, activates, activates_same_group, four_activates, refresh_cycle, refresh, queue, to_controller,
      from_controller, ports_per_channel;
};

struct Place {
  int64_t group = 0, bank = 0, row = 0;
};

struct Bank {
  int64_t row = -1;  // none is open
  int64_t activated = kLongAgo, read = kLongAgo;
};

struct Access {
  int64_t block, arrival;
  int words;  // of the burst, that the block holds
};

struct MemoryPort {
  std::deque<Access> waiting;
  std::deque<int64_t> arrived;  // words that the node has not taken: when they are there, in ps
};

Timing timing;
std::string address_map;
int64_t node_period = 0;  // ps; 0: memories have a constant latency

Place place(int64_t block) {
  std::array<int64_t, 128> parts{};
  int64_t width = static_cast<int64_t>(address_map.size());
  for (int64_t index = 0; index < width; ++index) {
    int64_t &part = parts[address_map[index] & 127];
    part = 2 * part + (block >> (width - 1 - index) & 1);
  }
  return {parts['G'], parts['B'], block >> width};
}

class PseudoChannel {
 public:
  explicit PseudoChannel(int64_t number)
      : ports(timing.ports_per_channel),
        in_queue_(timing.queue, kLongAgo),
        last_port_(ports.size() - 1),
        due_(timing.refresh + number % kStackChannels * timing.refresh / kStackChannels) {}

  std::vector<MemoryPort> ports;

  // Serve what the controller takes in before a cycle; all that arrives before it is known.
  void advance(int64_t end) {
    while (true) {
      int64_t first = end;
      for (const MemoryPort &port : ports)
        if (!port.waiting.empty()) first = std::min(first, port.waiting.front().arrival);
      int64_t entry = std::max({entry_ + timing.access, in_queue_.front(), first});
      if (entry >= end) return;
      serve(next_port(entry), entry);
    }
  }

 private:
  // The port whose turn it is, of those that have an access.
  MemoryPort &next_port(int64_t entry) {
    do {
      last_port_ = (last_port_ + 1) % ports.size();
    } while (ports[last_port_].waiting.empty() || ports[last_port_].waiting.front().arrival > entry);
    return ports[last_port_];
  }

  void serve(MemoryPort &port, int64_t entry) {
    Access access = port.waiting.front();
    port.waiting.pop_front();
    entry_ = entry;
    int64_t cycle = read(place(access.block), entry);
    in_queue_.pop_front();
    in_queue_.push_back(cycle);
    int64_t there = cycle + timing.cas_latency + timing.access + timing.from_controller;
    port.arrived.insert(port.arrived.end(), access.words, there * timing.period_ps);
  }

  // The cycle of the read command.
  int64_t read(const Place &where, int64_t seen) {
    Bank &bank = banks_[{where.group, where.bank}];
    int64_t activated = activate_cycle(where, bank, seen), cycle;
    while ((cycle = read_cycle(where, activated, seen)) >= due_) {
      refresh();
      activated = activate_cycle(where, bank, seen);
    }
    if (bank.row != where.row) {
      bank.row = where.row;
      bank.activated = activated;
      std::rotate(activates_.begin(), activates_.begin() + 1, activates_.end());
      activates_.back() = group_activates_.try_emplace(where.group).first->second = activated;
    }
    last_read_ = bank.read = group_reads_.try_emplace(where.group).first->second = cycle;
    return cycle;
  }

  // When the row is opened, or was.
  int64_t activate_cycle(const Place &where, const Bank &bank, int64_t seen) const {
    if (bank.row == where.row) return bank.activated;
    int64_t opened = std::max({seen, refreshed_, activates_.back() + timing.activates,
                               activates_.front() + timing.four_activates,
                               latest(group_activates_, where.group) + timing.activates_same_group});
    return bank.row < 0 ? opened : std::max(opened, std::max(seen, closed(bank)) + timing.precharge);
  }

  int64_t read_cycle(const Place &where, int64_t activated, int64_t seen) const {
    return std::max({seen, activated + timing.activate_to_read, last_read_ + timing.access,
                     latest(group_reads_, where.group) + timing.same_group});
  }

  // The earliest precharge of an open bank.
  static int64_t closed(const Bank &bank) {
    return std::max(bank.activated + timing.activate_to_precharge, bank.read + timing.read_to_precharge);
  }

  void refresh() {
    int64_t begin = due_;
    bool any = false;
    for (auto &[place, bank] : banks_) {
      if (bank.row < 0) continue;
      begin = std::max(begin, closed(bank));
      bank.row = -1;
      any = true;
    }
    refreshed_ = begin + any * timing.precharge + timing.refresh_cycle;
    due_ += timing.refresh;
  }

  static int64_t latest(const std::map<int64_t, int64_t> &of_groups, int64_t group) {
    auto found = of_groups.find(group);
    return found == of_groups.end() ? kLongAgo : found->second;
  }

  std::map<std::pair<int64_t, int64_t>, Bank> banks_;
  std::map<int64_t, int64_t> group_activates_, group_reads_;
  std::array<int64_t, 4> activates_{kLongAgo, kLongAgo, kLongAgo, kLongAgo};  // the oldest first
  std::deque<int64_t> in_queue_;  // when the accesses that the controller has seen last leave its queue
  size_t last_port_;
  int64_t entry_ = kLongAgo, last_read_ = kLongAgo, refreshed_ = 0, due_;
};

std::vector<std::map<int, PseudoChannel>> channels;  // of each node, by number

PseudoChannel &channel_of(int node, int port) {
  int number = port / static_cast<int>(timing.ports_per_channel);
  return channels[node].try_emplace(number, number).first->second;
}

// When the controllers see what ports ask for at a rising edge.
int64_t arrival(int64_t edge) {
  return (edge * node_period + timing.period_ps - 1) / timing.period_ps + timing.to_controller;
}

}  // namespace

extern "C" {

// ---- called by the top ----

// Whether memory ports are asked for their words here.
unsigned char fanin_hbm_used() { return node_period != 0; }

// A port has taken a burst's address at a rising edge.
void fanin_hbm_burst(int node, int port, long long address, int beats, int word_bytes, long long edge) {
  PseudoChannel &channel = channel_of(node, port);
  int64_t index = port % timing.ports_per_channel;
  std::deque<Access> &waiting = channel.ports[index].waiting;
  int64_t last = -1;
  for (int beat = 0; beat < beats; ++beat) {
    int64_t block = (address + int64_t{beat} * word_bytes) / kBlockBytes;
    if (block == last)
      ++waiting.back().words;
    else
      waiting.push_back({block * timing.ports_per_channel + index, arrival(edge), 1});
    last = block;
  }
}

// At a falling edge: whether a port has a word for the coming rising edge; ``taken``: one left at the last one.
unsigned char fanin_hbm_word(int node, int port, unsigned char taken, long long coming) {
  PseudoChannel &channel = channel_of(node, port);
  std::deque<int64_t> &arrived = channel.ports[port % timing.ports_per_channel].arrived;
  if (taken) arrived.pop_front();
  channel.advance(arrival(coming));
  return !arrived.empty() && arrived.front() <= coming * node_period;
}

// ---- called by Python ----

// From the start on, memories of ``nodes`` nodes are HBM.
void cosim_hbm(uint32_t nodes, uint64_t period_ps, const int64_t *numbers, const char *map) {
  timing = *reinterpret_cast<const Timing *>(numbers);
  address_map = map;
  node_period = static_cast<int64_t>(period_ps);
  channels.assign(nodes, {});
}

}  // extern "C"
