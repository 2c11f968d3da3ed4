// Registration of separately simulated models for a waveform; generated code (block.cpp.j2) uses it.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "verilated_fst_c.h"

// Scope of a model while the model is made: its first evaluation makes inner models, whose places depend on it.
class WaveScope {
 public:
  // ``module``: module of the model. ``instance``: its place as Verilog's %m, from the enclosing model's module on.
  // ``trace`` adds the model to a file.
  WaveScope(const std::string &module, const std::string &instance, std::function<void(VerilatedFstC *)> trace);
  ~WaveScope();

 private:
  const size_t scopes_, level_;  // of the enclosing model's place
};
