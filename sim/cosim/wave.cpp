// Writer of a waveform: a window of a run as FST. Only in simulators that are built for waveforms.
//
// Values are written in VPI's read-only region, after all changes at that time. Outside the window nothing is called.
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

// Position of a model in the hierarchy: its scopes, from its node's on, and the number of module instances in them.
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
Place parent;  // of the model that is being made

std::set<std::string> nodes;  // scopes of the nodes to write
std::string path;             // of the file
uint64_t period = 0;          // ps, as all times
uint64_t first = 0, count = 0;  // rising edges of the window: number of the first, and their count
size_t depth = 0;               // levels of modules, with the node's own
uint64_t skipped = 0;           // simulated time without clock edges
uint64_t edges = 0;             // rising edges in the file
bool over = false;              // the file is complete, or will not be written
bool looking = false;           // separate models also follow their inputs between clock edges
std::unique_ptr<VerilatedFstC> file;

size_t (*compressor)(int, const void *, size_t, void *, size_t) = nullptr;

// Time of the simulator. Rising edge n is at n + 1/2 periods, the falling edge before it at n periods.
uint64_t now() {
  s_vpi_time time{};
  time.type = vpiSimTime;
  vpi_get_time(nullptr, &time);
  return static_cast<uint64_t>(time.high) << 32 | time.low;
}

void call_at(uint64_t call_time, PLI_INT32 (*callback)(t_cb_data *)) {
  uint64_t delay = call_time - now();
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

void enter_scopes(void *model, VerilatedFst *writer, uint32_t) {
  for (const std::string &scope : static_cast<Model *>(model)->place.scopes)
    writer->pushPrefix(scope.c_str(), VerilatedTracePrefixType::SCOPE_MODULE);
}

void leave_scopes(void *model, VerilatedFst *writer, uint32_t) {
  for (size_t i = 0; i < static_cast<Model *>(model)->place.scopes.size(); ++i) writer->popPrefix();
}

void open() {
  file = std::make_unique<VerilatedFstC>();
  for (Model &model : models) {
    const Place &place = model.place;
    if (!nodes.count(place.scopes[0]) || place.level > depth) continue;
    std::string name;
    for (const std::string &scope : place.scopes) name += (name.empty() ? "" : ".") + scope;
    // A model adds its ports and the scope of its module below its place; the module's scope is not a level.
    file->dumpvars(static_cast<int>(depth - place.level + 2), name);
    if (place.level == 1) file->dumpvars(1, name + "." + model.module + ".view");  // see view.py
    file->spTrace()->addInitCb(enter_scopes, &model, name, false, 0);
    model.trace(file.get());
    file->spTrace()->addInitCb(leave_scopes, &model, name, false, 0);
  }
  file->open(path.c_str());
}

void close() {
  if (file) file->close();
  file.reset();
  looking = false;
  over = true;
}

// Called at each clock edge, from the falling edge before the window's first rising edge to the one after its last.
PLI_INT32 dump(t_cb_data *) {
  if (over) return 0;  // the run has ended
  uint64_t time = now(), half = period / 2;
  if (!file) open();
  if (time >= half) {  // the first falling edge is before the run
    file->dump(time - half + skipped);
    edges += time % period == half;
  }
  if (time >= (first + count) * period)
    close();
  else
    call_at(time + half, dump);
  return 0;
}

PLI_INT32 begin(t_cb_data *) {
  if (over) return 0;
  looking = true;
  call_at(first * period, dump);
  return 0;
}

}  // namespace

WaveScope::WaveScope(const std::string &module, const std::string &instance,
                     std::function<void(VerilatedFstC *)> trace)
    : scopes_(parent.scopes.size()), level_(parent.level) {
  std::stringstream scopes(instance);
  std::string scope;
  std::getline(scopes, scope, '.');
  if (parent.level) parent.scopes.push_back(scope);  // without the scope of the whole top
  while (std::getline(scopes, scope, '.')) {
    parent.scopes.push_back(scope);
    ++parent.level;
  }
  models.push_back({module, parent, std::move(trace)});
}

WaveScope::~WaveScope() {
  parent.scopes.resize(scopes_);
  parent.level = level_;
}

extern "C" {

size_t fanin_compress(int method, const void *source, size_t size, void *target, size_t capacity) {
  return compressor(method, source, size, target, capacity);
}

// Called by the stub of a separate model (block.sv.j2) at each change of its inputs.
svBit fanin_looking() { return looking; }

// ---- called by Python ----

void cosim_wave_node(const char *scope) { nodes.insert(scope); }

// Set file and window, before the simulation starts. ``compress`` must live as long as the process.
void cosim_wave(const char *file_path, uint64_t period_ps, uint64_t first_edge, uint64_t edge_count, uint64_t levels,
                size_t (*compress)(int, const void *, size_t, void *, size_t)) {
  path = file_path;
  period = period_ps;
  first = first_edge;
  count = edge_count;
  depth = levels;
  compressor = compress;
  call_at(first ? (first - 1) * period : 0, begin);
}

void cosim_wave_skip(uint64_t time_ps) { skipped += time_ps; }

// Complete the file, if the window was reached; returns the number of its rising edges.
uint64_t cosim_close_wave() {
  close();
  return edges;
}

}  // extern "C"
