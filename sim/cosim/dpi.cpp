// The other side of the simulated top: memories, host programs, frames, event trace.
//
// The SystemVerilog parts call fanin_* through DPI; Python, in the same process, calls cosim_* through ctypes.
// Both run in one thread.

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
enum Port : int { kMac, kHost, kPorts };  // through which frames enter and leave a node

// Poll repeats its read until (value & mask) == data, await until it is not; check fails unless it holds.
struct HostOperation {
  uint32_t kind, address, data, mask;
};

struct Region {
  uint8_t *bytes = nullptr;
  uint64_t size = 0;
  uint64_t repeats = 1;  // how many times its bytes follow one another
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
};

struct Interval {  // of rising edges, the last one not included
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

struct Source {  // of the frames that enter a node through a port
  std::multimap<uint64_t, FrameIn> frames;  // by time of arrival in ps; the host's own are there at once
  FrameIn current;
  size_t offset = 0;
  bool presenting = false;
};

struct Taken {
  uint64_t tag, cycle;
};

struct Ended {  // a node's program has, or a node has taken a frame of its host
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
  uint32_t node = UINT32_MAX;  // the last one of all: of no node
  std::string text;
};

struct Node {
  std::vector<Region> regions;
  std::vector<uint64_t> watched;  // bytes, in order
  std::vector<HostOperation> program;
  std::vector<uint32_t> reads;
  size_t step = 0;
  Source in[kPorts];
  std::vector<uint8_t> out[kPorts];  // of the frame that leaves through a port, so far
  uint32_t host_stall = 0;  // share of the cycles in which the host takes nothing, in 1/256
  std::minstd_rand random;
  std::vector<Interval> occupied;  // when the link from this node's MAC was
};

struct Event {  // as it stands in the trace file
  uint64_t cycle, events;
  uint32_t node, reserved;
};

std::vector<Node> nodes;
std::deque<FrameOut> frames_out[kPorts];
std::deque<Taken> taken;
std::deque<Ended> ended;  // programs, while live hosts run
std::deque<Write> written;
std::deque<Ended> sent;  // frames of hosts
size_t arriving = 0;  // frames for nodes that they have not taken
Failure failure;  // the earliest, and of those of one cycle that of the first node
struct {
  uint64_t cycle = UINT64_MAX;
  uint32_t node = UINT32_MAX, address = 0, value = 0;
} check;  // likewise
uint32_t first_node = 0;  // of this rank: what Python and messages call the top's node 0
uint64_t cycle = 0;  // of the coming rising edge
uint64_t period = 4000;
uint64_t skipped = 0;  // ps that no clock was run for
uint64_t alarm_cycle = UINT64_MAX;
uint64_t watchdog = UINT64_MAX;
uint64_t last_progress = 0;
uint64_t event_mask = 0;
uint64_t events_left = 0;
uint64_t last_event = UINT64_MAX;  // the cycle of the last entry in the trace
int memory_latency = 0;
int mac_rate = 0;  // 1/65536 bytes a cycle, as memory_rate
int memory_rate = 0;
size_t hosts_busy = 0;
uint64_t last_end = 0;  // the cycle behind that in which a program has ended last
bool alone = true;  // all nodes are in this top: Python wakes whenever a frame leaves one
bool live = false;  // live hosts run: a node may read for ever, and Python hands out programs one by one
bool wake = false;
FILE *trace = nullptr;

bool earlier(uint64_t than, uint32_t node, uint32_t that) { return cycle < than || (cycle == than && node < that); }

void note_failure(uint32_t node, const std::string &text) {
  if (earlier(failure.cycle, node, failure.node)) failure = {cycle, node, "cycle " + std::to_string(cycle) + ": " + text};
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

void enter(uint32_t index, Port port, uint64_t time_ps, FrameIn frame) {
  ++arriving;
  nodes[index].in[port].frames.emplace(time_ps, std::move(frame));
}

void finish_program(uint32_t index) {
  nodes[index].step = nodes[index].program.size();
  last_end = cycle + 1;
  if (--hosts_busy == 0) wake = true;
  note_end(index);
}

// What happens in a cycle live hosts hear in the next one, whatever has woken Python in between.
template <typename Noted> bool heard(const std::deque<Noted> &queue) {
  return !queue.empty() && queue.front().cycle < cycle;
}

bool pop(std::deque<Ended> &queue, uint32_t *node) {
  if (!heard(queue)) return false;
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

void fanin_start(int *period_ps, int *latency, int *rate, int *of_memories, svBit *wakes) {
  *period_ps = static_cast<int>(period);
  *latency = memory_latency;
  *rate = mac_rate;
  *of_memories = memory_rate;
  *wakes = alone;
}

// At every falling edge: whether Python is to be woken at the coming rising one.
svBit fanin_tick(long long coming) {
  cycle = static_cast<uint64_t>(coming);
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

// A block's output has followed an input within the cycle, which block.sv.j2 does not show.
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
  uint64_t room = begin < region.size ? region.size - begin : 0;
  const uint8_t *from = reinterpret_cast<const uint8_t *>(data);
  last_progress = cycle;
  for (int i = 0; i < bytes; ++i) {
    if (!(strobes[i / 32] >> i % 32 & 1)) continue;
    if (static_cast<uint64_t>(i) >= room)
      return fail(node, ", memory port " + std::to_string(port) + ": write at " + std::to_string(begin + i) +
                  " beyond its " + std::to_string(region.size) + " bytes");
    region.bytes[begin + i] = from[i];
    ++region.bytes_written;
  }
  if (!nodes[node].watched.empty()) note_watched(static_cast<uint32_t>(node), begin, bytes, strobes);
}

// The link from a node's MAC begins or ends to be occupied.
void fanin_occupied(int index, svBit occupied, long long coming) {
  std::vector<Interval> &intervals = nodes[index].occupied;
  uint64_t now = static_cast<uint64_t>(coming);
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
    if (earlier(check.cycle, number(index), check.node)) check = {cycle, number(index), operation.address, value};
    fail(index, text);
    return finish_program(index);
  }
  if (++node.step == node.program.size()) finish_program(index);
}

// A beat of a frame that leaves a node; the MAC itself sees to it that Python wakes.
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

// At a falling edge: the next beat, of a frame that had arrived by the rising edge before.
int fanin_beat_in(int index, int port, svBitVecVal *data, svBitVecVal *keep, int bytes, long long coming) {
  Source &source = nodes[index].in[port];
  if (!source.presenting) {
    uint64_t now = (static_cast<uint64_t>(coming) - 1) * period + skipped;
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

// At every falling edge: whether a node's host takes a beat at the coming rising one.
svBit fanin_host_takes(int index) {
  Node &node = nodes[index];
  return !node.host_stall || (node.random() >> 8) % 256 >= node.host_stall;
}

void fanin_event(int node, long long events) {
  uint64_t kept = static_cast<uint64_t>(events) & event_mask;
  if (!kept || !trace || (!events_left && cycle != last_event)) return;  // a cycle's entries are all kept, or none
  if (events_left) --events_left;
  last_event = cycle;
  Event event{cycle, kept, number(node), 0};
  fwrite(&event, sizeof event, 1, trace);
}

// ---- called by Python ----

void cosim_setup(uint32_t first, uint32_t count, bool all, uint64_t period_ps, int latency, uint64_t watchdog_cycles,
                 int rate, int of_memories) {
  first_node = first;
  alone = all;
  nodes.assign(count, Node());
  for (uint32_t node = 0; node < count; ++node) nodes[node].random.seed(first + node + 1);
  period = period_ps;
  memory_latency = latency;
  mac_rate = rate;
  memory_rate = of_memories;
  watchdog = watchdog_cycles;
}

// Map a file as the next memory port of a node, so many times in a row; what a writable one is written goes to the
// file, and is read by every other port of the same file. Returns false, with errno set, when that fails.
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

// Give a node's host its next program; all programs given in one wake start in the same cycle.
void cosim_run_host(uint32_t index, const HostOperation *program, size_t count) {
  Node &node = nodes[index];
  node.program.assign(program, program + count);
  node.reads.clear();
  node.step = 0;
  hosts_busy += count > 0;
  if (!count) note_end(index);
}

// From now on the end of each program wakes Python, and reading memory is no progress.
void cosim_go_live() {
  live = true;
  last_progress = cycle;
}

// The next node whose program has ended, or false.
bool cosim_pop_ended(uint32_t *node) { return pop(ended, node); }

// From now on a write of that byte wakes Python.
void cosim_watch(uint32_t index, uint64_t address) {
  std::vector<uint64_t> &watched = nodes[index].watched;
  auto at = std::lower_bound(watched.begin(), watched.end(), address);
  if (at == watched.end() || *at != address) watched.insert(at, address);
}

// The oldest write of a watched byte, or false.
bool cosim_pop_written(uint32_t *node, uint64_t *address) {
  if (!heard(written)) return false;
  *node = written.front().node;
  *address = written.front().address;
  written.pop_front();
  return true;
}

// Whether a frame is on its way to a node, or out of one.
bool cosim_holds_frames() {
  auto sends = [](const Node &node) {
    bool partial = !node.out[kMac].empty() || !node.out[kHost].empty();
    return partial || (!node.occupied.empty() && node.occupied.back().end == UINT64_MAX);
  };
  bool left = !frames_out[kMac].empty() || !frames_out[kHost].empty();
  return arriving || left || std::any_of(nodes.begin(), nodes.end(), sends);
}

uint64_t cosim_last_progress() { return last_progress; }

// Something has happened, perhaps at a node of another rank.
void cosim_note_progress(uint64_t when) { last_progress = std::max(last_progress, when); }

// Let time pass without the clock.
void cosim_skip(uint64_t time_ps) {
  skipped += time_ps;
  last_progress = cycle;
}

// Whether a program runs. An end is seen in the next cycle, whatever has woken Python.
bool cosim_hosts_busy() { return hosts_busy || last_end > cycle; }
uint64_t cosim_last_end() { return last_end; }

size_t cosim_read_count(uint32_t node) { return nodes[node].reads.size(); }
const uint32_t *cosim_reads(uint32_t node) { return nodes[node].reads.data(); }
uint64_t cosim_bytes_read(uint32_t node, uint32_t port) { return nodes[node].regions[port].bytes_read; }
uint64_t cosim_bytes_written(uint32_t node, uint32_t port) { return nodes[node].regions[port].bytes_written; }
size_t cosim_interval_count(uint32_t node) { return nodes[node].occupied.size(); }
const Interval *cosim_intervals(uint32_t node) { return nodes[node].occupied.data(); }

// The oldest frame that has left a node through a port, or false. ``bytes`` is valid until the next call.
bool cosim_pop_frame(uint32_t port, uint32_t *node, uint64_t *when, const uint8_t **bytes, size_t *size) {
  static FrameOut frame;
  if (port == kHost ? !heard(frames_out[port]) : frames_out[port].empty()) return false;
  frame = std::move(frames_out[port].front());
  frames_out[port].pop_front();
  *node = frame.node;
  *when = frame.cycle;
  *bytes = frame.bytes.data();
  *size = frame.bytes.size();
  return true;
}

void cosim_push_frame(uint32_t node, uint64_t time_ps, const uint8_t *bytes, size_t size, bool bad, uint64_t tag) {
  enter(node, kMac, time_ps, {std::vector<uint8_t>(bytes, bytes + size), tag, bad});
}

// A frame of a node's host, behind those that it already has.
void cosim_send(uint32_t node, const uint8_t *bytes, size_t size) {
  enter(node, kHost, 0, {std::vector<uint8_t>(bytes, bytes + size), 0, false});
}

// The next node that has taken a frame of its host, or false.
bool cosim_pop_sent(uint32_t *node) { return pop(sent, node); }

// From now on a node's host takes nothing in that share of the cycles, in 1/256.
void cosim_stall(uint32_t node, uint32_t share) { nodes[node].host_stall = share; }

// The oldest received frame whose last beat the node has taken, or false.
bool cosim_pop_taken(uint64_t *tag, uint64_t *when) {
  if (taken.empty()) return false;
  *tag = taken.front().tag;
  *when = taken.front().cycle;
  taken.pop_front();
  return true;
}

void cosim_set_alarm(uint64_t when) { alarm_cycle = when; }
uint64_t cosim_cycle() { return cycle; }
bool cosim_failed_check(uint64_t *when, uint32_t *node, uint32_t *address, uint32_t *value) {
  *when = check.cycle;
  *node = check.node;
  *address = check.address;
  *value = check.value;
  return check.cycle != UINT64_MAX;
}

// What has gone wrong first, or an empty text.
const char *cosim_failure(uint64_t *when, uint32_t *node) {
  *when = failure.cycle;
  *node = failure.node;
  return failure.text.c_str();
}

}  // extern "C"
