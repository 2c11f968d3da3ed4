"""Latencies in cycles and queue sizes in words, shared by RTL, flow model and schedules of layers.

Components of ``fanin.hdl`` take their latency from here, so RTL and model cannot differ: ``FP32Adder``,
``FP32Multiplier``, ``WindowPlaces`` (PLACES), ``Lines``, ``LineReader``, ``Results`` (RESULT_LINES),
``SumBanks`` (SUM_WRITE) and ``GradientRows``. Latencies of one kind of layer are in the kind's file.
"""

from __future__ import annotations

ADDER = 7  #: cycles of a binary32 addition
MULTIPLIER = 6  #: cycles of a binary32 multiplication
PLACES = 3  #: cycles from a step to the place (memories and addresses) of its window in a ring of rows
BANK_READ = 4  #: cycles from a place to the words read there
LINES = PLACES + BANK_READ  #: cycles from a step to the words of its window
LINE_READER = 2 + BANK_READ + 1  #: cycles from a complete row to the first word of its stream
RESULT_LINES = 1 + LINE_READER  #: cycles from the last result of a block to its first word
SUM_WRITE = ADDER + 2  #: cycles from a sum's place until the sum may be read
GRADIENT_ROWS = PLACES + SUM_WRITE + LINE_READER  #: cycles from a row's completing step to its first word

READ_AHEAD = 8  #: words between a bank's place and the end of the stream: 6 cycles from credit to credit
#: words of a result queue: more than a pipeline of normalisation or loss has stages, for full rate
RESULTS = 32
