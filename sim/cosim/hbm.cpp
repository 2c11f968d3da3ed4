// Timing of memory ports in pseudo-channels of HBM: the cycle in which each word arrives, as fanin/golden/hbm.py.
//
// fanin_memory (parts.sv) reports requested bursts, and polls before each rising edge whether its next word has
// arrived. Rules and numbers are those of the golden model; Python passes the numbers in the order of fanin/hbm.py.
// Cycles are the controller's, except in names with edge, which are the nodes'.

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
  int64_t row = -1;  // open row; -1: none
  int64_t activated = kLongAgo, read = kLongAgo;
};

struct Access {
  int64_t block, arrival;
  int words;  // of the burst in this block
};

struct MemoryPort {
  std::deque<Access> waiting;
  std::deque<int64_t> arrived;  // times of arrival in ps, of words that the node has not taken
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

  // Serve the accesses that enter the controller before cycle ``end``. All accesses that arrive by then must be queued.
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
  // The next port in turn with an access that has arrived by cycle ``entry``.
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
    int64_t arrival = cycle + timing.cas_latency + timing.access + timing.from_controller;
    port.arrived.insert(port.arrived.end(), access.words, arrival * timing.period_ps);
  }

  // Issue the commands of an access that entered the controller in cycle ``entry``; returns the read's cycle.
  int64_t read(const Place &place, int64_t entry) {
    Bank &bank = banks_[{place.group, place.bank}];
    int64_t activated = activate_cycle(place, bank, entry), cycle;
    while ((cycle = read_cycle(place, activated, entry)) >= due_) {
      refresh();
      activated = activate_cycle(place, bank, entry);
    }
    if (bank.row != place.row) {
      bank.row = place.row;
      bank.activated = activated;
      std::rotate(activates_.begin(), activates_.begin() + 1, activates_.end());
      activates_.back() = group_activates_.try_emplace(place.group).first->second = activated;
    }
    last_read_ = bank.read = group_reads_.try_emplace(place.group).first->second = cycle;
    return cycle;
  }

  // Cycle of the activate command of the row, past or future.
  int64_t activate_cycle(const Place &place, const Bank &bank, int64_t entry) const {
    if (bank.row == place.row) return bank.activated;
    int64_t cycle = std::max({entry, refreshed_, activates_.back() + timing.activates,
                              activates_.front() + timing.four_activates,
                              latest(group_activates_, place.group) + timing.activates_same_group});
    return bank.row < 0 ? cycle : std::max(cycle, std::max(entry, precharge_cycle(bank)) + timing.precharge);
  }

  int64_t read_cycle(const Place &place, int64_t activated, int64_t entry) const {
    return std::max({entry, activated + timing.activate_to_read, last_read_ + timing.access,
                     latest(group_reads_, place.group) + timing.same_group});
  }

  // Earliest cycle of a precharge of an open bank.
  static int64_t precharge_cycle(const Bank &bank) {
    return std::max(bank.activated + timing.activate_to_precharge, bank.read + timing.read_to_precharge);
  }

  void refresh() {
    int64_t begin = due_;
    bool any = false;
    for (auto &[place, bank] : banks_) {
      if (bank.row < 0) continue;
      begin = std::max(begin, precharge_cycle(bank));
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
  std::array<int64_t, 4> activates_{kLongAgo, kLongAgo, kLongAgo, kLongAgo};  // oldest first
  std::deque<int64_t> in_queue_;  // cycles in which the last ``timing.queue`` accesses leave the queue, oldest first
  size_t last_port_;
  int64_t entry_ = kLongAgo, last_read_ = kLongAgo, refreshed_ = 0, due_;
};

std::vector<std::map<int, PseudoChannel>> channels;  // of each node, by number

PseudoChannel &channel_of(int node, int port) {
  int number = port / static_cast<int>(timing.ports_per_channel);
  return channels[node].try_emplace(number, number).first->second;
}

// Cycle in which a controller sees a request of a port at a node's rising edge.
int64_t arrival(int64_t edge) {
  return (edge * node_period + timing.period_ps - 1) / timing.period_ps + timing.to_controller;
}

}  // namespace

extern "C" {

// ---- called by the top ----

// Whether memories are HBM; otherwise they have a constant latency.
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

// At a falling edge: whether a port has a word for the next rising edge, ``next_edge``. ``taken``: the node took a word
// at the last rising edge.
unsigned char fanin_hbm_word(int node, int port, unsigned char taken, long long next_edge) {
  PseudoChannel &channel = channel_of(node, port);
  std::deque<int64_t> &arrived = channel.ports[port % timing.ports_per_channel].arrived;
  if (taken) arrived.pop_front();
  channel.advance(arrival(next_edge));
  return !arrived.empty() && arrived.front() <= next_edge * node_period;
}

// ---- called by Python ----

// Make the memories of ``nodes`` nodes HBM; called before the simulation starts.
void cosim_hbm(uint32_t nodes, uint64_t period_ps, const int64_t *numbers, const char *map) {
  timing = *reinterpret_cast<const Timing *>(numbers);
  address_map = map;
  node_period = static_cast<int64_t>(period_ps);
  channels.assign(nodes, {});
}

}  // extern "C"
