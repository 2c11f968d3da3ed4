// How models that are simulated apart become part of a waveform. Generated code calls it; wave.cpp does it.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "verilated_fst_c.h"

// One while a model is made, so that those which its first evaluation makes inside it know where they are.
class WaveScope {
 public:
  // ``module`` is the model's; ``instance`` its place as Verilog's %m says it, from the module of the model around
  // it on. ``trace`` adds the model to a file.
  WaveScope(const std::string &module, const std::string &instance, std::function<void(VerilatedFstC *)> trace);
  ~WaveScope();

 private:
  const size_t scopes_, level_;  // of the place of the model around it
};
