// Boards that are simulated side by side, each with its own clocks and PHYs, under orders from standard input.
//
// An order is a line of words; what has bytes has them behind it. First the boards:
//   board KIND                                     the next lines are of this one
//   clock PORT NUMERATOR DENOMINATOR PHASE         a period in fs, as a fraction
//   phy RX_CLK RX_CTL RX_DATA TX_CLK TX_CTL TX_DATA RESET NUMERATOR DENOMINATOR PHASE
//       CLOCK_DELAY DATA_DELAY SAMPLE_DELAY        RESET: -1 for none
// Then, times in fs:
//   pin BOARD PORT VALUE TIME                      from then on
//   link BOARD PHY SPEED UP
//   send BOARD PHY START GAP ERROR BYTES           and the bytes
//   trace BOARD FILE PORT...                       of every change of these: time and ports, 8 bytes each
//   read BOARD PORT                                answers with the value
//   lost BOARD PHY                                 answers with the frames to and from the board that met a reset
//   run UNTIL                                      answers with "frame BOARD PHY END GAP ERROR BYTES", the bytes behind
//                                                  it, for each frame from the boards, and "done BUSY"
// Boards do not see one another within a run, so that each has a thread.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <string>
#include <thread>

#include "phy.h"

namespace {

[[noreturn]] void fail(const char *text) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}

struct Clock {
  int port;
  Edges edges;
};

struct Change {
  Time time;
  uint64_t order;
  int port;
  uint64_t value;
  bool operator>(const Change &other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

struct Board {
  std::unique_ptr<Model> model;
  std::vector<Clock> clocks;
  std::vector<Phy> phys;
  std::priority_queue<Change, std::vector<Change>, std::greater<Change>> changes;
  FILE *trace = nullptr;
  std::vector<int> traced;  // ports
  std::vector<uint64_t> values;  // of these
  bool stale = true;  // inputs have changed since the last evaluation

  Time next() const {
    Time result = changes.empty() ? kNever : changes.top().time;
    for (const Clock &clock : clocks) result = std::min(result, clock.edges.next());
    for (const Phy &phy : phys) {
      result = std::min({result, phy.next_clock(), phy.next_data(), phy.next_sample()});
    }
    return result;
  }

  void run(Time until) {
    for (Time now = next(); now < until; now = next()) step(now);
  }

  // What is sampled at this time comes first, then the edges of clocks, then what changes beside them: a register
  // sees what was there before its edge. Changed inputs wait for the next edge: nothing looks at outputs before.
  void step(Time now) {
    for (Phy &phy : phys)
      while (phy.next_sample() == now) refresh(), phy.sample(*model);
    bool edge = false;
    for (Clock &clock : clocks)
      if (clock.edges.next() == now) {
        model->set(clock.port, clock.edges.rising());
        ++clock.edges.number;
        edge = true;
      }
    for (Phy &phy : phys)
      if (phy.next_clock() == now) phy.drive_clock(*model), edge = true;
    if (edge) evaluate(now);
    for (Phy &phy : phys)
      while (phy.next_data() == now) phy.drive_data(*model), stale = true;
    while (!changes.empty() && changes.top().time == now) {
      model->set(changes.top().port, changes.top().value);
      changes.pop();
      stale = true;
    }
  }

  void evaluate(Time now) {
    std::vector<std::pair<uint64_t, uint64_t>> &before = before_;
    before.clear();
    for (Phy &phy : phys) before.emplace_back(model->get(phy.tx_ctl), model->get(phy.tx_data));
    model->eval();
    stale = false;
    for (Phy &phy : phys) phy.watch_reset(*model);
    for (size_t index = 0; index < phys.size(); ++index)
      phys[index].watch(*model, now, before[index].first, before[index].second);
    if (trace) record(now);
  }

  void refresh() {
    if (stale) model->eval(), stale = false;
  }

  void record(Time now) {
    bool changed = false;
    for (size_t index = 0; index < traced.size(); ++index) {
      const uint64_t value = model->get(traced[index]);
      changed |= value != values[index];
      values[index] = value;
    }
    if (!changed) return;
    fwrite(&now, sizeof now, 1, trace);
    fwrite(values.data(), sizeof values[0], values.size(), trace);
  }

  bool busy() const {
    for (const Phy &phy : phys)
      if (!phy.idle()) return true;
    return !changes.empty();
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> before_;
};

std::vector<Board> boards;

class Order {
 public:
  bool next() {
    char *line = nullptr;
    size_t capacity = 0;
    const ssize_t size = getline(&line, &capacity, stdin);
    words_.clear(), at_ = 0;
    if (size < 0) return free(line), false;
    for (char *word = strtok(line, " \n"); word; word = strtok(nullptr, " \n")) words_.push_back(word);
    free(line);
    return !words_.empty();
  }
  const std::string &word() { return at_ < words_.size() ? words_[at_++] : (fail("an order is too short"), words_[0]); }
  bool more() const { return at_ < words_.size(); }
  int64_t number() { return strtoll(word().c_str(), nullptr, 10); }
  Board &board() { return boards.at(number()); }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};

Edges edges(Order &order) {
  Edges result;
  result.numerator = order.number(), result.denominator = order.number(), result.phase = order.number();
  return result;
}

void add_phy(Order &order) {
  Phy phy;
  for (int *port : {&phy.rx_clk, &phy.rx_ctl, &phy.rx_data, &phy.tx_clk, &phy.tx_ctl, &phy.tx_data,
                    &phy.reset})
    *port = order.number();
  phy.clock = edges(order);
  phy.clock_delay = order.number(), phy.data_delay = order.number(), phy.sample_delay = order.number();
  phy.start();
  boards.back().phys.push_back(std::move(phy));
}

void send(Order &order) {
  Phy &phy = order.board().phys.at(order.number());
  ToBoard frame;
  frame.start = order.number(), frame.gap = order.number(), frame.error = order.number();
  frame.bytes.resize(order.number());
  if (frame.bytes.empty() || fread(frame.bytes.data(), 1, frame.bytes.size(), stdin) != frame.bytes.size())
    fail("a frame has no bytes");
  phy.enqueue(std::move(frame));
}

void run(Time until) {
  std::vector<std::thread> others;
  for (size_t index = 1; index < boards.size(); ++index)
    others.emplace_back([=] { boards[index].run(until); });
  if (!boards.empty()) boards[0].run(until);
  for (std::thread &other : others) other.join();
  bool busy = false;
  for (size_t number = 0; number < boards.size(); ++number) {
    busy |= boards[number].busy();
    for (size_t port = 0; port < boards[number].phys.size(); ++port) {
      for (const FromBoard &frame : boards[number].phys[port].frames) {
        printf("frame %zu %zu %" PRIu64 " %" PRIu64 " %d %zu\n", number, port, frame.end, frame.gap, frame.error,
               frame.bytes.size());
        fwrite(frame.bytes.data(), 1, frame.bytes.size(), stdout);
      }
      boards[number].phys[port].frames.clear();
    }
  }
  printf("done %d\n", busy);
}

void carry_out(Order &order) {
  static uint64_t count = 0;
  const std::string name = order.word();
  if (name == "board") {
    boards.emplace_back();
    boards.back().model = make_model(order.number());
    boards.back().model->eval();  // a first edge is one only after this
  } else if (name == "clock") {
    const int port = order.number();
    boards.back().clocks.push_back({port, edges(order)});
  } else if (name == "phy") {
    add_phy(order);
  } else if (name == "pin") {
    Board &board = order.board();
    const int port = order.number();
    const uint64_t value = strtoull(order.word().c_str(), nullptr, 10);
    board.changes.push({Time(order.number()), count++, port, value});
  } else if (name == "link") {
    Phy &phy = order.board().phys.at(order.number());
    phy.speed = order.number(), phy.up = order.number();
  } else if (name == "send") {
    send(order);
  } else if (name == "trace") {
    Board &board = order.board();
    board.trace = fopen(order.word().c_str(), "wb");
    if (!board.trace) fail("a trace cannot be written");
    board.traced.clear();
    while (order.more()) board.traced.push_back(order.number());
    board.values.resize(board.traced.size());
  } else if (name == "read") {
    Board &board = order.board();
    board.refresh();
    printf("%" PRIu64 "\n", board.model->get(order.number()));
  } else if (name == "lost") {
    const Phy &phy = order.board().phys.at(order.number());
    printf("%" PRIu64 " %" PRIu64 "\n", phy.lost_to_board, phy.lost_from_board);
  } else if (name == "run") {
    run(order.number());
  } else {
    fail("an unknown order");
  }
}

}  // namespace

int main() {
  Order order;
  while (order.next()) {
    carry_out(order);
    fflush(stdout);
  }
  for (Board &board : boards)
    if (board.trace) fclose(board.trace);
  return 0;
}
