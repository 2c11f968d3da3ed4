"""Cycles of the components that layers are made of, and words that their queues hold.

RTL, flow model and schedules read these. A latency of one kind of layer stands in the file of that kind.
"""

from __future__ import annotations

ADDER = 7  #: of a binary32 addition
MULTIPLIER = 6  #: of a binary32 multiplication
PLACES = 3  #: from a step to the place of its window in a ring of rows
BANK_READ = 4  #: from a place to its words
LINES = PLACES + BANK_READ  #: from a step to the words of its window
LINE_READER = 2 + BANK_READ + 1  #: from a complete row to the first word of the stream that it becomes
RESULT_LINES = 1 + LINE_READER  #: from the last result of a block to its first word
SUMS_SEEN = ADDER + 2  #: from a sum's place until the sum may be read
GRADIENT_ROWS = PLACES + SUMS_SEEN + LINE_READER  #: from the step that completes a row to the row's first word

READ_AHEAD = 8  #: words between a bank's place and the end of the stream: 6 cycles from credit to credit
#: words of a result queue: more than a pipeline of normalisation or loss has stages, for full rate
RESULTS = 32
