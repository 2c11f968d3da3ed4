"""A dictionary in pages is a dictionary, and no page grows beyond its size."""

import random

import pytest

from fanin.sim.switch.embedded import pages
from fanin.sim.switch.embedded.pages import Pages
from tests.support import new_seed


def test_pages_are_a_dictionary_in_the_order_of_arrival(monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 4)
    rng = random.Random(new_seed())
    found, model = Pages(), {}
    for number in range(2000):
        key = rng.randrange(30)
        if key in model and rng.random() < 0.7:
            found.remove(key)
            del model[key]
        elif key not in model:
            found.add(key, number)
            model[key] = number
        assert list(found.values()) == list(model.values())
        assert (len(found), bool(found)) == (len(model), bool(model))
        assert all((key in found) == (key in model) and found.get(key) == model.get(key) for key in range(30))
        assert all(len(page) <= 4 for page in found.pages())
    with pytest.raises(KeyError):
        found.remove(31)


def test_entries_may_go_while_pages_are_read(monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 4)
    found = Pages()
    for key in range(12):
        found.add(key, key)
    seen = found.pages()
    assert next(seen) == [0, 1, 2, 3]
    for key in (1, 2, 5, 8, 9, 10, 11):
        found.remove(key)
    assert next(seen) == [4, 6, 7]
