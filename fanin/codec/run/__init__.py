"""``fanin codec``: files of values, and what codecs make of them."""
