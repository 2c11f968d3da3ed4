// Waveforms: a window of a run as FST. Only in simulators that are built for it.
//
// Values are written in VPI's read-only region, when all that happens at a time has happened. While no window is
// open, nothing is called.
#include "wave.h"

#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "svdpi.h"
#include "verilated.h"
#include "vpi_user.h"
#include "wave_compress.h"

namespace {

// Where a model is: scopes, from its node's on, and how many of them are instances of modules.
struct Place {
  std::vector<std::string> scopes;
  size_t level = 0;
};

struct Model {
  std::string module;
  Place place;
  std::function<void(VerilatedFstC *)> trace;
};

std::vector<Model> models;
Place around;  // of the model that is being made

std::set<std::string> nodes;  // scopes of those that are wanted
std::string path;             // of the file
uint64_t period = 0;          // ps, as all times
uint64_t first = 0, count = 0;  // rising edges of the window
size_t depth = 0;               // levels of modules, the node's own included
uint64_t skipped = 0;           // time that no clock was run for
uint64_t edges = 0;             // that are in the file
bool over = false;              // the file is complete, or never begins
bool looking = false;           // models apart are shown as they are between their edges, too
std::unique_ptr<VerilatedFstC> file;

size_t (*compressor)(int, const void *, size_t, void *, size_t) = nullptr;

// The simulator's time; rising edge n is at n + 1/2 periods of it, the falling one before it at n.
uint64_t now() {
  s_vpi_time time{};
  time.type = vpiSimTime;
  vpi_get_time(nullptr, &time);
  return static_cast<uint64_t>(time.high) << 32 | time.low;
}

void at(uint64_t when, PLI_INT32 (*callback)(t_cb_data *)) {
  uint64_t delay = when - now();
  s_vpi_time time{};
  time.type = vpiSimTime;
  time.high = static_cast<PLI_UINT32>(delay >> 32);
  time.low = static_cast<PLI_UINT32>(delay);
  t_cb_data request{};
  request.reason = cbReadOnlySynch;
  request.cb_rtn = callback;
  request.time = &time;
  vpi_release_handle(vpi_register_cb(&request));
}

void enter(void *model, VerilatedFst *writer, uint32_t) {
  for (const std::string &scope : static_cast<Model *>(model)->place.scopes)
    writer->pushPrefix(scope.c_str(), VerilatedTracePrefixType::SCOPE_MODULE);
}

void leave(void *model, VerilatedFst *writer, uint32_t) {
  for (size_t i = 0; i < static_cast<Model *>(model)->place.scopes.size(); ++i) writer->popPrefix();
}

void open() {
  file = std::make_unique<VerilatedFstC>();
  for (Model &model : models) {
    const Place &place = model.place;
    if (!nodes.count(place.scopes[0]) || place.level > depth) continue;
    std::string name;
    for (const std::string &scope : place.scopes) name += (name.empty() ? "" : ".") + scope;
    // Below its place a model has its ports, and the scope of its module, which is no level of its own.
    file->dumpvars(static_cast<int>(depth - place.level + 2), name);
    if (place.level == 1) file->dumpvars(1, name + "." + model.module + ".view");  // see view.py
    file->spTrace()->addInitCb(enter, &model, name, false, 0);
    model.trace(file.get());
    file->spTrace()->addInitCb(leave, &model, name, false, 0);
  }
  file->open(path.c_str());
}

void close() {
  if (file) file->close();
  file.reset();
  looking = false;
  over = true;
}

// At each edge of the clock, from the falling one before the window's first rising one to the one behind its last.
PLI_INT32 dump(t_cb_data *) {
  if (over) return 0;  // asked for before the run ended
  uint64_t time = now(), half = period / 2;
  if (!file) open();
  if (time >= half) {  // the first falling edge is before the run
    file->dump(time - half + skipped);
    edges += time % period == half;
  }
  if (time >= (first + count) * period)
    close();
  else
    at(time + half, dump);
  return 0;
}

PLI_INT32 look(t_cb_data *) {
  if (over) return 0;
  looking = true;
  at(first * period, dump);
  return 0;
}

}  // namespace

WaveScope::WaveScope(const std::string &module, const std::string &instance,
                     std::function<void(VerilatedFstC *)> trace)
    : scopes_(around.scopes.size()), level_(around.level) {
  std::stringstream scopes(instance);
  std::string scope;
  std::getline(scopes, scope, '.');
  if (around.level) around.scopes.push_back(scope);  // not that of the whole top
  while (std::getline(scopes, scope, '.')) {
    around.scopes.push_back(scope);
    ++around.level;
  }
  models.push_back({module, around, std::move(trace)});
}

WaveScope::~WaveScope() {
  around.scopes.resize(scopes_);
  around.level = level_;
}

extern "C" {

size_t fanin_compress(int method, const void *from, size_t size, void *to, size_t room) {
  return compressor(method, from, size, to, room);
}

// Asked by what stands for a model apart, at each change of its inputs.
svBit fanin_looking() { return looking; }

// ---- called by Python ----

void cosim_wave_node(const char *scope) { nodes.insert(scope); }

// Before the simulation: what to write. ``compress`` must live as long as the process.
void cosim_wave(const char *to, uint64_t period_ps, uint64_t first_edge, uint64_t edge_count, uint64_t levels,
                size_t (*compress)(int, const void *, size_t, void *, size_t)) {
  path = to;
  period = period_ps;
  first = first_edge;
  count = edge_count;
  depth = levels;
  compressor = compress;
  at(first ? (first - 1) * period : 0, look);
}

void cosim_wave_skip(uint64_t time_ps) { skipped += time_ps; }

// Complete the file, if the window has been reached: how many rising edges it has.
uint64_t cosim_close_wave() {
  close();
  return edges;
}

}  // extern "C"
