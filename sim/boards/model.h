// Interface of a Verilated board for the harness: ports by number, inputs first, in the order of BoardModel.
#pragma once
#include <cstdint>
#include <memory>

struct Model {
  virtual ~Model() = default;
  virtual void set(int port, uint64_t value) = 0;
  virtual uint64_t get(int port) const = 0;
  virtual void eval() = 0;
};

std::unique_ptr<Model> make_model(int kind);
