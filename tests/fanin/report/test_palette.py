"""Colours are told apart by people with each kind of colour blindness, in light and dark."""

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from fanin.report.palette import KINDS, STEPS, STYLES

CSS = resources.files("fanin.report").joinpath("report.css").read_text()
TOLD_APART = ("blue", "sky", "orange", "green", "red", "purple", "grey", "ink")
LEAST_DISTANCE = 12.0  # of CIELAB, in which 2 can just be seen
LEAST_CONTRAST = 2.2  # with the page; WCAG asks for 3 of what is told by its colour alone
#: Machado, Oliveira, Fernandes (2009), severity 1; of linear RGB.
SEEN_WITH = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = XYZ.sum(axis=1)


def _schemes():
    """The colours of the style sheet: those of light, and of dark."""
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in CSS.split("@media")[:2])
    return {"light": light, "dark": dark}


def _linear(colour):
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _lab(linear):
    share = XYZ @ np.clip(linear, 0, 1) / WHITE
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("seen_with", SEEN_WITH)
def test_colours_are_told_apart(scheme, seen_with):
    colours, matrix = _schemes()[scheme], np.array(SEEN_WITH[seen_with])
    seen = {name: _lab(matrix @ _linear(colours[name])) for name in TOLD_APART}
    distances = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in combinations(seen, 2)}
    assert {pair: distance for pair, distance in distances.items() if distance < LEAST_DISTANCE} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out_from_the_page(scheme):
    colours = _schemes()[scheme]
    light = {name: _linear(colours[name]) @ XYZ[1] for name in (*TOLD_APART, "page")}
    for name in TOLD_APART:
        low, high = sorted((light[name], light["page"]))
        assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST, name


def test_series_have_colours_that_are_told_apart_and_the_style_sheet_has_all():
    assert {style.colour for style in STYLES.values()} | set(STEPS) <= set(TOLD_APART)
    for colours in _schemes().values():
        assert set(KINDS.values()) | set(TOLD_APART) <= set(colours)
