// C++ side of the simulated top: memories, host programs, frames, event trace.
//
// The SystemVerilog parts call fanin_* through DPI. Python runs in the same process and calls cosim_* through ctypes.
// Both run in one thread. Cycles are numbers of rising edges.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "svdpi.h"

namespace {

enum Operation : uint32_t { kWrite, kRead, kPoll, kCheck, kAwait };
enum Port : int { kMac, kHost, kPorts };  // packet ports of a node

// kPoll repeats its read until (value & mask) == data, kAwait until they differ; kCheck fails if they differ.
struct HostOperation {
  uint32_t kind, address, data, mask;
};

struct Region {  // of a memory port: a mapped file
  uint8_t *bytes = nullptr;
  uint64_t size = 0;
  uint64_t repeats = 1;  // how many times its bytes follow one another
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
};

struct Interval {  // rising edges from begin to end - 1
  uint64_t begin, end;
};

struct FrameOut {
  uint64_t cycle;
  uint32_t node;
  std::vector<uint8_t> bytes;
};

struct FrameIn {
  std::vector<uint8_t> bytes;
  uint64_t tag;
  bool error;
};

struct Source {  // frames that enter a node through a port
  std::multimap<uint64_t, FrameIn> frames;  // by time of arrival in ps; 0 for frames of the host
  FrameIn current;
  size_t offset = 0;
  bool presenting = false;
};

struct Taken {
  uint64_t tag, cycle;
};

struct Completion {  // end of a node's program, or of the transfer of a frame from its host
  uint64_t cycle;
  uint32_t node;
};

struct Write {  // of a watched byte
  uint64_t cycle;
  uint32_t node;
  uint64_t address;
};

struct Failure {
  uint64_t cycle = UINT64_MAX;
  uint32_t node = UINT32_MAX;  // UINT32_MAX: a failure without a node
  std::string text;
};

struct Node {
  std::vector<Region> regions;
  std::vector<uint64_t> watched;  // sorted addresses of bytes
  std::vector<HostOperation> program;
  std::vector<uint32_t> reads;
  size_t step = 0;
  Source in[kPorts];
  std::vector<uint8_t> out[kPorts];  // bytes of the unfinished frame that leaves through a port
  uint32_t host_stall = 0;  // share of the cycles in which the host takes nothing, in 1/256
  std::minstd_rand random;
  std::vector<Interval> occupied;  // edges at which the link from this node's MAC was occupied
};

struct Event {  // entry of the trace file
  uint64_t cycle, events;
  uint32_t node, reserved;
};

std::vector<Node> nodes;
std::deque<FrameOut> frames_out[kPorts];
std::deque<Taken> taken;
std::deque<Completion> ended;  // programs, while live hosts run
std::deque<Write> written;
std::deque<Completion> sent;  // frames of hosts
size_t arriving = 0;  // frames for nodes that the nodes have not taken
Failure failure;  // the earliest; of several in one cycle, that of the first node
struct {
  uint64_t cycle = UINT64_MAX;
  uint32_t node = UINT32_MAX, address = 0, value = 0;
} check;  // the earliest failed check, chosen as failure is
uint32_t first_node = 0;  // number of the top's node 0 in the whole run
uint64_t cycle = 0;  // number of the next rising edge
uint64_t period = 4000;  // ps
uint64_t skipped = 0;  // simulated ps without clock edges
uint64_t alarm_cycle = UINT64_MAX;
uint64_t watchdog = UINT64_MAX;
uint64_t last_progress = 0;
uint64_t event_mask = 0;
uint64_t events_left = 0;
uint64_t last_event = UINT64_MAX;  // cycle of the last entry in the trace
int memory_latency = 0;  // cycles
int mac_rate = 0, memory_rate = 0;  // 1/65536 bytes a cycle; 0: no limit
size_t hosts_busy = 0;  // running programs
uint64_t last_end = 0;  // cycle after the last end of a program
bool single_rank = true;  // all nodes are in this top: Python wakes whenever a frame leaves a node
bool live = false;  // live hosts run: memory reads are no progress, and each end of a program wakes Python
bool wake = false;  // Python wakes at the next rising edge
FILE *trace = nullptr;

// Whether a failure of ``node`` in this cycle precedes the one noted.
bool precedes(uint64_t noted_cycle, uint32_t node, uint32_t noted_node) {
  return cycle < noted_cycle || (cycle == noted_cycle && node < noted_node);
}

void note_failure(uint32_t node, const std::string &text) {
  if (precedes(failure.cycle, node, failure.node)) failure = {cycle, node, "cycle " + std::to_string(cycle) + ": " + text};
  wake = true;
}

uint32_t number(int node) { return first_node + static_cast<uint32_t>(node); }

void fail(int node, const std::string &text) {
  note_failure(number(node), "node " + std::to_string(number(node)) + text);
}

void note_end(uint32_t index) {
  if (!live) return;
  ended.push_back({cycle, index});
  wake = true;
}

void add_frame(uint32_t index, Port port, uint64_t time_ps, FrameIn frame) {
  ++arriving;
  nodes[index].in[port].frames.emplace(time_ps, std::move(frame));
}

void finish_program(uint32_t index) {
  nodes[index].step = nodes[index].program.size();
  last_end = cycle + 1;
  if (--hosts_busy == 0) wake = true;
  note_end(index);
}

// Whether the oldest entry may be reported. Live hosts see an event one cycle later, whatever else has woken Python.
template <typename Entry> bool is_due(const std::deque<Entry> &queue) {
  return !queue.empty() && queue.front().cycle < cycle;
}

bool pop(std::deque<Completion> &queue, uint32_t *node) {
  if (!is_due(queue)) return false;
  *node = queue.front().node;
  queue.pop_front();
  return true;
}

void note_watched(uint32_t index, uint64_t begin, int bytes, const svBitVecVal *strobes) {
  const std::vector<uint64_t> &watched = nodes[index].watched;
  for (auto at = std::lower_bound(watched.begin(), watched.end(), begin);
       at != watched.end() && *at - begin < static_cast<uint64_t>(bytes); ++at) {
    int byte = static_cast<int>(*at - begin);
    if (!(strobes[byte / 32] >> byte % 32 & 1)) continue;
    written.push_back({cycle, index, *at});
    wake = true;
  }
}

}  // namespace

extern "C" {

// ---- called by the top ----

void fanin_start(int *period_ps, int *latency, int *frame_rate, int *word_rate, svBit *wakes) {
  *period_ps = static_cast<int>(period);
  *latency = memory_latency;
  *frame_rate = mac_rate;
  *word_rate = memory_rate;
  *wakes = single_rank;
}

// At every falling edge: whether Python must wake at the next rising edge, ``next_edge``.
svBit fanin_tick(long long next_edge) {
  cycle = static_cast<uint64_t>(next_edge);
  if (cycle - last_progress >= watchdog && failure.text.empty())
    note_failure(UINT32_MAX, "no progress for " + std::to_string(watchdog) + " cycles");
  bool due = wake || cycle >= alarm_cycle;
  wake = false;
  if (cycle >= alarm_cycle) alarm_cycle = UINT64_MAX;
  return due;
}

void fanin_violation(int node, const char *stream, const char *text) {
  fail(node, std::string(", stream ") + stream + ": " + text);
}

// A block's output has followed an input within the cycle; block.sv.j2 models only registered outputs.
void fanin_block_failed(const char *text) { note_failure(UINT32_MAX - 1, text); }

void fanin_read(int node, int port, long long address, int bytes, svBitVecVal *data) {
  Region &region = nodes[node].regions[port];
  uint64_t begin = static_cast<uint64_t>(address);
  if (!live) last_progress = cycle;
  region.bytes_read += bytes;
  uint64_t size = region.size * region.repeats;
  uint64_t at = begin < size && region.repeats > 1 ? begin % region.size : begin;
  if (at <= region.size && region.size - at >= static_cast<uint64_t>(bytes)) {
    memcpy(data, region.bytes + at, bytes);
    return;
  }
  memset(data, 0, bytes);
  fail(node, ", memory port " + std::to_string(port) + ": read at " + std::to_string(begin) +
       " beyond its " + std::to_string(size) + " bytes");
}

void fanin_write(int node, int port, long long address, int bytes, const svBitVecVal *data, const svBitVecVal *strobes) {
  Region &region = nodes[node].regions[port];
  uint64_t begin = static_cast<uint64_t>(address);
  uint64_t available = begin < region.size ? region.size - begin : 0;
  const uint8_t *source = reinterpret_cast<const uint8_t *>(data);
  last_progress = cycle;
  for (int i = 0; i < bytes; ++i) {
    if (!(strobes[i / 32] >> i % 32 & 1)) continue;
    if (static_cast<uint64_t>(i) >= available)
      return fail(node, ", memory port " + std::to_string(port) + ": write at " + std::to_string(begin + i) +
                  " beyond its " + std::to_string(region.size) + " bytes");
    region.bytes[begin + i] = source[i];
    ++region.bytes_written;
  }
  if (!nodes[node].watched.empty()) note_watched(static_cast<uint32_t>(node), begin, bytes, strobes);
}

// The link from a node's MAC becomes occupied, or idle, at edge ``next_edge``.
void fanin_occupied(int index, svBit occupied, long long next_edge) {
  std::vector<Interval> &intervals = nodes[index].occupied;
  uint64_t now = static_cast<uint64_t>(next_edge);
  if (occupied)
    intervals.push_back({now, UINT64_MAX});
  else if (!intervals.empty())
    intervals.back().end = now;
}

int fanin_host_next(int index, int *address, int *data) {
  Node &node = nodes[index];
  if (node.step >= node.program.size()) return 0;
  const HostOperation &operation = node.program[node.step];
  *address = operation.address;
  *data = operation.data;
  return operation.kind == kWrite ? 1 : 2;
}

void fanin_host_done(int index, int data, int response) {
  Node &node = nodes[index];
  const HostOperation &operation = node.program[node.step];
  uint32_t value = static_cast<uint32_t>(data);
  bool match = (value & operation.mask) == operation.data;
  char text[160];
  if (response) {
    snprintf(text, sizeof text, ": the bus answers register 0x%x with error %d", operation.address, response);
    fail(index, text);
    return finish_program(index);
  }
  if (operation.kind == kPoll && !match) return;
  if (operation.kind == kAwait && match) return;
  last_progress = cycle;
  if (operation.kind == kRead || operation.kind == kAwait) node.reads.push_back(value);
  if (operation.kind == kCheck && !match) {
    snprintf(text, sizeof text, ": register 0x%x reads 0x%x, expected 0x%x under mask 0x%x", operation.address,
             value, operation.data, operation.mask);
    if (precedes(check.cycle, number(index), check.node)) check = {cycle, number(index), operation.address, value};
    fail(index, text);
    return finish_program(index);
  }
  if (++node.step == node.program.size()) finish_program(index);
}

// A beat of a frame that leaves a node. For frames of the MAC, the top wakes Python.
void fanin_beat_out(int index, int port, const svBitVecVal *data, const svBitVecVal *keep, svBit last, int bytes) {
  std::vector<uint8_t> &frame = nodes[index].out[port];
  last_progress = cycle;
  int count = 0;
  while (count < bytes && keep[count / 32] >> count % 32 & 1) ++count;
  const uint8_t *begin = reinterpret_cast<const uint8_t *>(data);
  frame.insert(frame.end(), begin, begin + count);
  const char *stream = port == kMac ? "mac_tx" : "host_rx";
  if (!last && count != bytes)
    fail(index, std::string(", stream ") + stream + ": a beat that is not the last has gaps");
  if (!last) return;
  frames_out[port].push_back({cycle, static_cast<uint32_t>(index), std::move(frame)});
  frame.clear();
  if (port == kHost && live) wake = true;
}

// At a falling edge: the next beat of a frame that had arrived by the previous rising edge.
// Returns bit 0: a beat; bit 1: last; bit 2: error.
int fanin_beat_in(int index, int port, svBitVecVal *data, svBitVecVal *keep, int bytes, long long next_edge) {
  Source &source = nodes[index].in[port];
  if (!source.presenting) {
    uint64_t now = (static_cast<uint64_t>(next_edge) - 1) * period + skipped;
    if (source.frames.empty() || source.frames.begin()->first > now) return 0;
    source.current = std::move(source.frames.begin()->second);
    source.frames.erase(source.frames.begin());
    source.offset = 0;
    source.presenting = true;
  }
  const std::vector<uint8_t> &frame = source.current.bytes;
  int count = static_cast<int>(std::min<size_t>(bytes, frame.size() - source.offset));
  memset(data, 0, bytes);
  memcpy(data, frame.data() + source.offset, count);
  memset(keep, 0, (bytes + 31) / 32 * 4);
  for (int i = 0; i < count; ++i) keep[i / 32] |= 1u << i % 32;
  source.offset += count;
  bool last = source.offset == frame.size();
  if (last) source.presenting = false;
  return 1 | last << 1 | (last && source.current.error) << 2;
}

// The node has taken the last beat of a frame.
void fanin_frame_taken(int index, int port) {
  last_progress = cycle;
  --arriving;
  if (port == kMac) {
    taken.push_back({nodes[index].in[kMac].current.tag, cycle});
  } else {
    sent.push_back({cycle, static_cast<uint32_t>(index)});
    wake = true;
  }
}

// At every falling edge: whether a node's host takes a beat at the next rising edge.
svBit fanin_host_takes(int index) {
  Node &node = nodes[index];
  return !node.host_stall || (node.random() >> 8) % 256 >= node.host_stall;
}

void fanin_event(int node, long long events) {
  uint64_t selected = static_cast<uint64_t>(events) & event_mask;
  if (!selected || !trace || (!events_left && cycle != last_event)) return;  // a cycle's entries: all, or none
  if (events_left) --events_left;
  last_event = cycle;
  Event event{cycle, selected, number(node), 0};
  fwrite(&event, sizeof event, 1, trace);
}

// ---- called by Python ----

void cosim_setup(uint32_t first, uint32_t count, bool all_nodes, uint64_t period_ps, int latency,
                 uint64_t watchdog_cycles, int frame_rate, int word_rate) {
  first_node = first;
  single_rank = all_nodes;
  nodes.assign(count, Node());
  for (uint32_t node = 0; node < count; ++node) nodes[node].random.seed(first + node + 1);
  period = period_ps;
  memory_latency = latency;
  mac_rate = frame_rate;
  memory_rate = word_rate;
  watchdog = watchdog_cycles;
}

// Map a file as the next memory port of a node; its bytes repeat ``repeats`` times. Writes of a writable port change
// the file and are seen by all ports of the same file. Returns false, with errno set, if the file cannot be mapped.
bool cosim_map(uint32_t node, const char *path, bool writable, uint64_t repeats) {
  Region region;
  region.repeats = repeats;
  int file = open(path, writable ? O_RDWR : O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status)) return false;
  region.size = status.st_size;
  if (region.size) {
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *bytes = mmap(nullptr, region.size, protection, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) return false;
    region.bytes = static_cast<uint8_t *>(bytes);
  }
  close(file);
  nodes[node].regions.push_back(region);
  return true;
}

bool cosim_trace(const char *path, uint64_t mask, uint64_t limit) {
  trace = fopen(path, "wb");
  event_mask = mask;
  events_left = limit;
  return trace != nullptr;
}

void cosim_close_trace() {
  if (trace) fclose(trace);
  trace = nullptr;
  events_left = 0;
}

// Start a program at a node's host; all programs of one wake-up of Python start in the same cycle.
void cosim_run_host(uint32_t index, const HostOperation *program, size_t count) {
  Node &node = nodes[index];
  node.program.assign(program, program + count);
  node.reads.clear();
  node.step = 0;
  hosts_busy += count > 0;
  if (!count) note_end(index);
}

// Switch to live hosts: the end of each program wakes Python, and memory reads are no progress.
void cosim_go_live() {
  live = true;
  last_progress = cycle;
}

// Get the next node whose program has ended; returns false if there is none.
bool cosim_pop_ended(uint32_t *node) { return pop(ended, node); }

// Wake Python at each write of a byte from now on.
void cosim_watch(uint32_t index, uint64_t address) {
  std::vector<uint64_t> &watched = nodes[index].watched;
  auto at = std::lower_bound(watched.begin(), watched.end(), address);
  if (at == watched.end() || *at != address) watched.insert(at, address);
}

// Get the oldest write of a watched byte; returns false if there is none.
bool cosim_pop_written(uint32_t *node, uint64_t *address) {
  if (!is_due(written)) return false;
  *node = written.front().node;
  *address = written.front().address;
  written.pop_front();
  return true;
}

// Whether a frame is in flight to a node, or partly sent by a node.
bool cosim_holds_frames() {
  auto sends = [](const Node &node) {
    bool partial = !node.out[kMac].empty() || !node.out[kHost].empty();
    return partial || (!node.occupied.empty() && node.occupied.back().end == UINT64_MAX);
  };
  bool unread = !frames_out[kMac].empty() || !frames_out[kHost].empty();
  return arriving || unread || std::any_of(nodes.begin(), nodes.end(), sends);
}

uint64_t cosim_last_progress() { return last_progress; }

// Note progress at an edge, perhaps at a node of another rank.
void cosim_note_progress(uint64_t edge) { last_progress = std::max(last_progress, edge); }

// Let time pass without clock edges.
void cosim_skip(uint64_t time_ps) {
  skipped += time_ps;
  last_progress = cycle;
}

// Whether a program runs. The end of a program is reported one cycle later, whatever else has woken Python.
bool cosim_hosts_busy() { return hosts_busy || last_end > cycle; }
uint64_t cosim_last_end() { return last_end; }

size_t cosim_read_count(uint32_t node) { return nodes[node].reads.size(); }
const uint32_t *cosim_reads(uint32_t node) { return nodes[node].reads.data(); }
uint64_t cosim_bytes_read(uint32_t node, uint32_t port) { return nodes[node].regions[port].bytes_read; }
uint64_t cosim_bytes_written(uint32_t node, uint32_t port) { return nodes[node].regions[port].bytes_written; }
size_t cosim_interval_count(uint32_t node) { return nodes[node].occupied.size(); }
const Interval *cosim_intervals(uint32_t node) { return nodes[node].occupied.data(); }

// Get the oldest frame that has left a node through a port; returns false if there is none. ``bytes`` is valid until
// the next call.
bool cosim_pop_frame(uint32_t port, uint32_t *node, uint64_t *edge, const uint8_t **bytes, size_t *size) {
  static FrameOut frame;
  if (port == kHost ? !is_due(frames_out[port]) : frames_out[port].empty()) return false;
  frame = std::move(frames_out[port].front());
  frames_out[port].pop_front();
  *node = frame.node;
  *edge = frame.cycle;
  *bytes = frame.bytes.data();
  *size = frame.bytes.size();
  return true;
}

void cosim_push_frame(uint32_t node, uint64_t time_ps, const uint8_t *bytes, size_t size, bool bad, uint64_t tag) {
  add_frame(node, kMac, time_ps, {std::vector<uint8_t>(bytes, bytes + size), tag, bad});
}

// Queue a frame at a node's host.
void cosim_send(uint32_t node, const uint8_t *bytes, size_t size) {
  add_frame(node, kHost, 0, {std::vector<uint8_t>(bytes, bytes + size), 0, false});
}

// Get the next node that has taken a frame of its host; returns false if there is none.
bool cosim_pop_sent(uint32_t *node) { return pop(sent, node); }

// Let a node's host take nothing in ``share`` / 256 of the cycles, drawn at random.
void cosim_stall(uint32_t node, uint32_t share) { nodes[node].host_stall = share; }

// Get the oldest received frame whose last beat the node has taken; returns false if there is none.
bool cosim_pop_taken(uint64_t *tag, uint64_t *edge) {
  if (taken.empty()) return false;
  *tag = taken.front().tag;
  *edge = taken.front().cycle;
  taken.pop_front();
  return true;
}

void cosim_set_alarm(uint64_t edge) { alarm_cycle = edge; }
uint64_t cosim_cycle() { return cycle; }

// Get the earliest failed check; returns false if there is none.
bool cosim_failed_check(uint64_t *edge, uint32_t *node, uint32_t *address, uint32_t *value) {
  *edge = check.cycle;
  *node = check.node;
  *address = check.address;
  *value = check.value;
  return check.cycle != UINT64_MAX;
}

// The earliest failure; an empty text if there is none.
const char *cosim_failure(uint64_t *edge, uint32_t *node) {
  *edge = failure.cycle;
  *node = failure.node;
  return failure.text.c_str();
}

}  // extern "C"
