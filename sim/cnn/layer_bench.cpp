// Runs jobs through a component: words into its input streams, words out of its output streams, with stalls of both.
// Arguments: name of the component, file of the request, file for the result; layer_bench.py writes and reads them.
#include "layer_bench.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

namespace {

constexpr uint32_t kAll = 65536;  // parts of all cycles, in which odds are
constexpr uint32_t kSlow = 0.97 * kAll;
constexpr uint32_t kProbed = kAll / 16;  // share of cycles in which valid is asked whether it waits for ready
constexpr uint32_t kQuiet = 64;          // cycles after a job in which nothing may leave
constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint8_t kIdle = 0xA5;  // bytes of a payload that is not offered
constexpr uint8_t kReset = 4;    // cycles

[[noreturn]] void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {
    for (int step = 0; step < 8; ++step) next();
  }
  uint32_t below(uint32_t limit) { return (uint64_t{next()} * limit) >> 32; }
  bool chance(uint32_t odds) { return odds && below(kAll) < odds; }

 private:
  uint32_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1D >> 32;
  }
  uint64_t state_;
};

// Phases in which now the sources, now the sinks are nearly stopped: those of fanin.sim.rtl.stalls.
class Phases {
 public:
  Phases(Random &random, uint32_t odds, size_t streams) : random_(random), odds_(odds), own_(streams) {}

  uint32_t odds_of(size_t stream, bool source, uint64_t cycle) {
    if (cycle >= end_) begin_next();
    switch (order_[at_]) {
      case kFill: return source ? 0 : kSlow;
      case kDrain: return source ? kSlow : 0;
      case kFullRate: return 0;
      case kEven: return odds_;
      default: return own_[stream];
    }
  }

 private:
  enum Phase { kFill, kDrain, kFullRate, kEven, kUneven, kPhases };

  void begin_next() {
    if (++at_ == kPhases) {  // the first round is in order, so that a short run fills and drains, too
      at_ = 0;
      for (uint32_t left = kPhases; left > 1; --left) std::swap(order_[left - 1], order_[random_.below(left)]);
    }
    end_ += random_.below(2) ? 128 : 64;
    const uint32_t choices[] = {0, kSlow, odds_};
    for (uint32_t &odds : own_) odds = choices[random_.below(3)];
  }

  Random &random_;
  uint32_t odds_;
  std::vector<uint32_t> own_;  // of each stream in an uneven phase
  Phase order_[kPhases] = {kFill, kDrain, kFullRate, kEven, kUneven};
  int at_ = -1;
  uint64_t end_ = 0;
};

class Request {  // 32-bit words in a file
 public:
  explicit Request(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s cannot be read", path);
    fseek(file, 0, SEEK_END);
    words_.resize(ftell(file) / 4);
    rewind(file);
    if (fread(words_.data(), 4, words_.size(), file) != words_.size()) fail("%s cannot be read", path);
    fclose(file);
  }
  uint32_t next() { return *take(1); }
  const uint32_t *take(size_t count) {
    if (at_ + count > words_.size()) fail("the request ends too early");
    at_ += count;
    return words_.data() + at_ - count;
  }

 private:
  std::vector<uint32_t> words_;
  size_t at_ = 0;
};

void put(const Place &place, const uint32_t *words) { memcpy(place.data, words, place.size); }

struct Loop {  // from an output to an input, through a queue without limit
  std::deque<std::pair<uint64_t, std::vector<uint32_t>>> queue;  // cycle from which it may be offered, payload
  uint32_t latency = 0;
};

struct End {  // the bench's end of a stream
  const Stream *stream;
  uint32_t odds = 0;
  Loop *loop = nullptr;
  const End *gate = nullptr;  // an output: a frame is offered when the same frame has left there
  // of the job
  const uint32_t *feed = nullptr;
  uint32_t left = 0, count = 0;  // transfers to come, and all of them; a loop has neither
  std::vector<uint32_t> words, cycles;
  // of an output that waits for its transfer
  bool waits = false;
  std::vector<uint8_t> held;

  const char *name() const { return stream->name; }
  std::vector<uint32_t> payload() const {
    std::vector<uint32_t> copy(stream->payload.words());
    if (!copy.empty()) memcpy(copy.data(), stream->payload.data, std::min(copy.size() * 4, stream->payload.size));
    return copy;
  }
};

class Bench {
 public:
  Bench(Model &model, Request &request) : model_(model), request_(request), random_(request.next()) {
    patience_ = request.next();
    const uint32_t latency = request.next();
    phased_ = request.next();
    for (const Stream &stream : model.streams) ends_.push_back({&stream, request.next()});
    for (End &end : ends_) {
      const uint32_t other = request.next();
      if (other == kNone) continue;
      loops_.push_back(std::make_unique<Loop>());
      loops_.back()->latency = latency;
      end.loop = ends_[other].loop = loops_.back().get();
    }
    for (End &end : ends_)
      if (const uint32_t other = request.next(); other != kNone) end.gate = &ends_[other];
    phases_ = std::make_unique<Phases>(random_, ends_.empty() ? 0 : ends_[0].odds, ends_.size());
    for (const Place &place : model.registers) put(place, request.take(place.words()));
    reset();
  }

  void run_job(uint32_t number, std::vector<uint32_t> &result) {
    job_ = number;
    frames_ = request_.next();
    const uint32_t *begin = request_.take(model_.control.words());
    const uint32_t *hold = request_.take(model_.control.words());
    for (End &end : ends_) begin_stream(end);
    start_ = last_transfer_ = cycle_;
    if (model_.control.data) put(model_.control, begin);
    step();
    if (model_.control.data) put(model_.control, hold);
    step();
    while (!finished()) {
      step();
      if (cycle_ - last_transfer_ > patience_) give_up();
    }
    result.push_back(cycle_ - start_);
    for (uint32_t quiet = 0; quiet < kQuiet; ++quiet) step();
    for (const End &end : ends_) {
      result.push_back(end.cycles.size());
      result.insert(result.end(), end.cycles.begin(), end.cycles.end());
      result.insert(result.end(), end.words.begin(), end.words.end());
    }
  }

 private:
  void reset() {
    for (const End &end : ends_) end.stream->input ? withdraw(end) : void(*end.stream->ready = 0);
    *model_.rst = 1;
    for (int cycle = 0; cycle < kReset; ++cycle) *model_.clk = 0, model_.eval(), *model_.clk = 1, model_.eval();
    *model_.rst = 0;
  }

  void begin_stream(End &end) {
    end.words.clear(), end.cycles.clear();
    if (end.loop) return;
    end.count = end.left = request_.next();
    if (end.stream->input) end.feed = request_.take(size_t{end.count} * end.stream->payload.words());
  }

  bool finished() const {
    for (const End &end : ends_)
      if (end.left || (end.loop && !end.loop->queue.empty())) return false;
    return !model_.done || *model_.done;
  }

  void step() {
    for (size_t index = 0; index < ends_.size(); ++index) drive(index);
    *model_.clk = 0;
    if (random_.chance(kProbed)) probe();
    model_.eval();
    for (End &end : ends_) {
      if (!end.stream->input) check(end);
      if (*end.stream->valid && *end.stream->ready) transfer(end);
    }
    *model_.clk = 1;
    model_.eval();
    ++cycle_;
    for (End &end : ends_)
      if (end.stream->input && taken(end)) withdraw(end);
  }

  bool stalls(size_t index) {
    const End &end = ends_[index];
    return random_.chance(phased_ ? phases_->odds_of(index, end.stream->input, cycle_) : end.odds);
  }

  void drive(size_t index) {
    const End &end = ends_[index];
    const Stream &stream = *end.stream;
    if (!stream.input) {
      *stream.ready = !stalls(index);
    } else if (!*stream.valid) {
      const uint32_t *next = offered(end);
      if (!next || stalls(index)) return;
      *stream.valid = 1;
      put(stream.payload, next);
    }
  }

  const uint32_t *offered(const End &end) const {  // the payload that may come next, if there is one
    if (!end.loop) return end.left && !gated(end) ? end.feed : nullptr;
    const auto &queue = end.loop->queue;
    return !queue.empty() && queue.front().first <= cycle_ ? queue.front().second.data() : nullptr;
  }

  bool gated(const End &end) const {
    if (!end.gate) return false;
    const uint64_t left = end.gate->cycles.size() / std::max(1u, end.gate->count / frames_);  // whole frames
    return end.count - end.left >= left * (end.count / frames_);
  }

  void withdraw(const End &end) {
    *end.stream->valid = 0;
    if (end.stream->payload.data) memset(end.stream->payload.data, kIdle, end.stream->payload.bits / 8);
  }

  void probe() {  // with all outputs waiting, the same of them must be valid as without
    std::vector<uint8_t> ready, valid;
    for (const End &end : ends_)
      if (!end.stream->input) ready.push_back(*end.stream->ready), *end.stream->ready = 0;
    model_.eval();
    for (const End &end : ends_)
      if (!end.stream->input) valid.push_back(*end.stream->valid);
    size_t at = 0;
    for (const End &end : ends_)
      if (!end.stream->input) *end.stream->ready = ready[at++];
    model_.eval();
    at = 0;
    for (const End &end : ends_)
      if (!end.stream->input && *end.stream->valid != valid[at++]) complain(end, "is valid only with a ready");
  }

  void check(End &end) {
    const bool valid = *end.stream->valid;
    if (end.waits && !valid) complain(end, "was not taken, and is not valid any more");
    const Place &place = end.stream->payload;
    if (end.waits && memcmp(place.data, end.held.data(), place.size)) complain(end, "changed while it waited");
    if (valid && !end.loop && !end.left) complain(end, "offers more than is expected");
    end.waits = valid && !*end.stream->ready;
    if (!end.waits) return;
    const auto *bytes = static_cast<const uint8_t *>(place.data);
    end.held.assign(bytes, bytes + place.size);
  }

  void transfer(End &end) {
    const auto payload = end.payload();
    end.cycles.push_back(cycle_ - start_);
    last_transfer_ = cycle_;
    if (!end.stream->input) {
      end.words.insert(end.words.end(), payload.begin(), payload.end());
      if (end.loop) end.loop->queue.emplace_back(cycle_ + end.loop->latency, payload);
    } else if (end.loop) {
      end.loop->queue.pop_front();
    } else {
      end.feed += payload.size();
    }
    if (!end.loop) --end.left;
  }

  bool taken(const End &end) const { return !end.cycles.empty() && end.cycles.back() == cycle_ - start_ - 1; }

  [[noreturn]] void complain(const End &end, const char *what) const {
    fail("job %u, cycle %llu: %s %s (after %zu transfers)", job_, (unsigned long long)(cycle_ - start_), end.name(),
         what, end.cycles.size());
  }

  [[noreturn]] void give_up() const {
    std::string waiting;
    for (const End &end : ends_) {
      const size_t queued = end.loop && end.stream->input ? end.loop->queue.size() : 0;
      if (!end.left && !queued) continue;
      waiting += std::string(", ") + end.name() + ' ' + std::to_string(end.cycles.size()) + " of " +
                 std::to_string(queued ? end.cycles.size() + queued : end.count);
    }
    if (model_.done && !*model_.done) waiting += ", done is 0";
    fail("job %u, cycle %llu: no transfer for %u cycles; transfers so far: %s", job_,
         (unsigned long long)(cycle_ - start_), patience_, waiting.c_str() + 2);
  }

  Model &model_;
  Request &request_;
  Random random_;
  uint32_t patience_ = 0, job_ = 0, frames_ = 1;
  bool phased_ = false;
  std::vector<End> ends_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<Phases> phases_;
  uint64_t cycle_ = 0, start_ = 0, last_transfer_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) fail("arguments: component, request, result");
  std::unique_ptr<Model> model = make_model(argv[1]);
  if (!model) fail("%s is not in this program", argv[1]);
  Request request(argv[2]);
  std::vector<uint32_t> result;
  const uint32_t jobs = request.next();
  Bench bench(*model, request);
  for (uint32_t job = 0; job < jobs; ++job) bench.run_job(job, result);
  FILE *file = fopen(argv[3], "wb");
  if (!file || fwrite(result.data(), 4, result.size(), file) != result.size() || fclose(file))
    fail("%s cannot be written", argv[3]);
  return 0;
}
