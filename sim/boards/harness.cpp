// Simulator of boards, each with its own clocks and PHYs, controlled by commands on standard input.
//
// A command is a line of words; bytes follow the line. First the boards:
//   board KIND                                     a board; the next lines belong to it
//   clock PORT NUMERATOR DENOMINATOR PHASE         a period in fs, as a fraction
//   phy RX_CLK RX_CTL RX_DATA TX_CLK TX_CTL TX_DATA RESET NUMERATOR DENOMINATOR PHASE
//       CLOCK_DELAY DATA_DELAY SAMPLE_DELAY        RESET: -1 for none
// Then, with times in fs:
//   pin BOARD PORT VALUE TIME                      set an input from TIME on
//   link BOARD PHY SPEED UP                        set the link status
//   send BOARD PHY START GAP ERROR BYTES           send the bytes that follow
//   trace BOARD FILE PORT...                       write every change of the ports: time and values, 8 bytes each
//   read BOARD PORT                                reply: the value
//   lost BOARD PHY                                 reply: frames to and from the board that were lost in a reset
//   run UNTIL                                      reply: "frame BOARD PHY END GAP ERROR BYTES" and the bytes for each
//                                                  frame from the boards, then "done BUSY"
// Boards do not interact within a run, so each runs in its own thread.
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
  std::vector<uint64_t> values;  // of the traced ports
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

  // Carry out all events of one time: samples first, then clock edges, then changes of other inputs, so that a register
  // sees the values before its edge. Changed inputs take effect at the next edge, since no output is read before.
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

class Command {
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
  const std::string &word() { return at_ < words_.size() ? words_[at_++] : (fail("a command is too short"), words_[0]); }
  bool more() const { return at_ < words_.size(); }
  int64_t number() { return strtoll(word().c_str(), nullptr, 10); }
  Board &board() { return boards.at(number()); }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};

Edges edges(Command &command) {
  Edges result;
  result.numerator = command.number(), result.denominator = command.number(), result.phase = command.number();
  return result;
}

void add_phy(Command &command) {
  Phy phy;
  for (int *port : {&phy.rx_clk, &phy.rx_ctl, &phy.rx_data, &phy.tx_clk, &phy.tx_ctl, &phy.tx_data,
                    &phy.reset})
    *port = command.number();
  phy.clock = edges(command);
  phy.clock_delay = command.number(), phy.data_delay = command.number(), phy.sample_delay = command.number();
  phy.start();
  boards.back().phys.push_back(std::move(phy));
}

void send(Command &command) {
  Phy &phy = command.board().phys.at(command.number());
  ToBoard frame;
  frame.start = command.number(), frame.gap = command.number(), frame.error = command.number();
  frame.bytes.resize(command.number());
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

void carry_out(Command &command) {
  static uint64_t count = 0;
  const std::string name = command.word();
  if (name == "board") {
    boards.emplace_back();
    boards.back().model = make_model(command.number());
    boards.back().model->eval();  // required before the first clock edge
  } else if (name == "clock") {
    const int port = command.number();
    boards.back().clocks.push_back({port, edges(command)});
  } else if (name == "phy") {
    add_phy(command);
  } else if (name == "pin") {
    Board &board = command.board();
    const int port = command.number();
    const uint64_t value = strtoull(command.word().c_str(), nullptr, 10);
    board.changes.push({Time(command.number()), count++, port, value});
  } else if (name == "link") {
    Phy &phy = command.board().phys.at(command.number());
    phy.speed = command.number(), phy.up = command.number();
  } else if (name == "send") {
    send(command);
  } else if (name == "trace") {
    Board &board = command.board();
    board.trace = fopen(command.word().c_str(), "wb");
    if (!board.trace) fail("a trace cannot be written");
    board.traced.clear();
    while (command.more()) board.traced.push_back(command.number());
    board.values.resize(board.traced.size());
  } else if (name == "read") {
    Board &board = command.board();
    board.refresh();
    printf("%" PRIu64 "\n", board.model->get(command.number()));
  } else if (name == "lost") {
    const Phy &phy = command.board().phys.at(command.number());
    printf("%" PRIu64 " %" PRIu64 "\n", phy.lost_to_board, phy.lost_from_board);
  } else if (name == "run") {
    run(command.number());
  } else {
    fail("an unknown command");
  }
}

}  // namespace

int main() {
  Command command;
  while (command.next()) {
    carry_out(command);
    fflush(stdout);
  }
  for (Board &board : boards)
    if (board.trace) fclose(board.trace);
  return 0;
}
