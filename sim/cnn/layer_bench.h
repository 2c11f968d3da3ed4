// What layer_bench.cpp knows of a component: its ports as places in the Verilated model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct Place {  // a port's value: on a little-endian machine its bits in order, in `size` bytes
  void *data = nullptr;
  size_t size = 0;
  uint32_t bits = 0;

  uint32_t words() const { return (bits + 31) / 32; }
};

struct Stream {
  const char *name;
  bool input;  // of the component
  Place payload;
  uint8_t *valid, *ready;
};

struct Model {
  std::vector<Stream> streams;
  std::vector<Place> registers;
  Place control;
  uint8_t *clk, *rst, *done = nullptr;

  virtual void eval() = 0;
  virtual ~Model() = default;
};

std::unique_ptr<Model> make_model(const std::string &name);
