"""The program's text: limits, what is in it, and that each configuration has its own."""

import re

import pytest

from fanin.cli.main import main
from fanin.p4.emit import program_text
from fanin.p4.program import ProgramConfig, Target, controls, state_registers, sum_registers
from fanin.wire import Encap, Protocol
