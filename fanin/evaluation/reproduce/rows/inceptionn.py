"""INCEPTIONN's numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.evaluation.reproduce.row import (
    Figures,
    Fit,
    How,
    Measurement,
    Paper,
    Picture,
    Row,
    Value,
    extreme,
    inverse,
    one,
)
from fanin.sim.codec.tags import BOUNDS, FORM_BITS, TABLE_III, ratio

_RTL = "NIC at 100 MHz, hosts take no time"  # the paper's clock
_COMMUNICATE = {"AlexNet": 148.71, "HDC": 1.36, "ResNet-50": 60.58, "VGG-16": 583.58}  # s, table II
_SUM = {"AlexNet": 8.94, "HDC": 0.09, "ResNet-50": 3.68, "VGG-16": 19.89}
_SHARE = {"HDC": 80.2, "ResNet-50": 80.2, "VGG-16": 70.9}  # % of the time, communication; AlexNet's is fitted
_SAVED = {"AlexNet": 55.0, "HDC": 39.0, "ResNet-50": 58.0, "VGG-16": 36.0}  # % of the communication, INC
_TIME = {"AlexNet": 52.0, "HDC": 38.0, "ResNet-50": 49.0, "VGG-16": 31.0}  # % of all time
_PREDICTED = ("HDC", "ResNet-50", "VGG-16")

_EXCHANGE = "exchange"  # the model of section VIII-D
_LINKS = "links at their rate; the paper's hosts reach a part of it, and another part for each network"
_GIVEN = "given the communication that the ring saves, as figure 12 has it"
_VGG = "VGG-16's bytes take 335 s at AlexNet's rate; the paper measured 584"
_ONE_SEED = "one training"
_DIGITS = "the digits that scikit-learn ships, MNIST's kin of 8 × 8 pixels"
_SMALL = "theirs: AlexNet, ResNet-50, VGG-16 on ImageNet; ours: three small networks, two trainings each"
_HOST = "our processor, one core, and gradients of digits; theirs: a Xeon E5-2640, all of a training"


def _model(name: str) -> Measurement:
    return Measurement(("bench", "ring", "--models"), one(f"INCEPTIONN: {name}"), folder=True)


def _rtl(value: Value) -> Measurement:
    return Measurement(("bench", "inceptionn"), value, folder=True)


def _training(value: Value, *options: str) -> Measurement:
    return Measurement(("bench", "codec-training", *options), value, folder=True)


def _digits(value: Value) -> Measurement:
    """The paper's digit classifier over each codec."""
    options = ("bench", "codec-training", "--figure", "14", "--networks", "hdc", "--seeds", "1")
    return Measurement(options, value, folder=True, data={"mnist": ("--mnist", "{}")})


def _others(value: Value) -> Measurement:
    return _training(value, "--figure", "14", "--networks", "cnn", "residual", "templates", "--seeds", "2")


def _verified(place: int) -> Measurement:
    """Compressor (0) and decompressor (1) in simulation."""
    command = ("codec", "verify", "--codec", "inceptionn", "--mode", "published", "--rtl", "--values", "100000")
    return Measurement(command, inverse(f"checks.{place}.cycles_per_group"))


def _table_2() -> Iterator[Row]:
    for network, seconds in _COMMUNICATE.items():
        what, why = f"{network}: 100 exchanges over an aggregator", _VGG if network == "VGG-16" else ""
        if network in _PREDICTED:
            model = _model(f"{network}: WA, communicate")
            yield Row("table-2", what, "VII-C", seconds, "s", How.MODEL, model, why=why, model=_EXCHANGE)
            what_, model = f"{network}: 100 sums at the aggregator", _model(f"{network}: WA, gradient sum")
            yield Row("table-2", what_, "VII-C", _SUM[network], "s", How.MODEL, model, model=_EXCHANGE)
        rtl = _rtl(one(f"{_RTL}: {network}: WA, communicate"))
        yield Row("table-2", f"{what}, RTL NICs", "VII-C", seconds, "s", How.RTL, rtl, why=why, slow=True)


def _figure_3() -> Iterator[Row]:
    command = ("--figure", "3", "--figure", "5", "--networks", "hdc", "--seeds", "1")
    for network, share in _SHARE.items():
        found = _training(one(f"figure 3: {network}, communication"), *command)
        why = _VGG if network == "VGG-16" else ""
        what = f"{network}: of the time, communication"
        yield Row("3b", what, "II-B", share, "%", How.MODEL, found, why=why, model=_EXCHANGE)
    inside = _training(extreme(min, r"figure 5: hdc, \w+: between -1 and 1"), *command)
    why = "theirs: AlexNet; ours: the digit classifier"
    yield Row("5", "gradients between -1 and 1", "III-B", 100.0, "% of values", How.TIED, inside, why=why)


def _figure_7() -> Iterator[Row]:
    pattern = r"figure 7: (Snappy|SZ3, 2\^-10), early: \w+"
    for pick, name, times in ((min, "least", 2.0), (max, "most", 4.0)):
        found = _training(
            extreme(pick, pattern, ("Snappy", "SZ3, 2^-10")),
            "--figure",
            "7",
            "--networks",
            "hdc",
            "--seeds",
            "1",
        )
        what = f"training time, Snappy and SZ on the host, {name}"
        yield Row("7", what, "VI", times, "× without", How.HOST, found, why=_HOST)


def _figure_12() -> Iterator[Row]:
    for network, saved in _SAVED.items():
        name, what = f"{network}: INC, communication saved", f"{network}: of the communication, by the ring"
        why = _LINKS + (f"; {_VGG}" if network == "VGG-16" else "")
        if network in _PREDICTED:
            yield Row("12", what, "VIII-A", saved, "%", How.MODEL, _model(name), why=why, model=_EXCHANGE)
        rtl = _rtl(one(f"{_RTL}: {name}"))
        yield Row("12", f"{what}, RTL NICs", "VIII-A", saved, "%", How.RTL, rtl, why=why, slow=True)
    for network, saved in _TIME.items():
        what = f"{network}: of the training time, by the ring"
        model = _model(f"{network}: INC, time saved")
        yield Row("12", what, "VIII-A", saved, "%", How.MODEL, model, why=_GIVEN, model=_EXCHANGE)


def _compressed() -> Iterator[Row]:
    """Figure 12 with the codec, by the model and over RTL NICs."""
    both = (
        ("AlexNet: of an aggregator's communication, by the codec", 30.8, "AlexNet: WA+C, communication saved"),
        ("of the communication, by ring and codec, least", 70.9, "INC+C, communication saved, least"),
    )
    for (what, saved, name), why in zip(both, ("", _GIVEN), strict=True):
        yield Row("12", what, "VIII-A", saved, "%", How.MODEL, _model(name), why=why, model=_EXCHANGE)
    for end, times in (("least", 2.2), ("most", 3.1)):
        what, model = f"speed-up by ring and codec, {end} of four networks", _model(f"INC+C, faster, {end}")
        yield Row("12", what, "VIII-A", times, "×", How.MODEL, model, why=_GIVEN, model=_EXCHANGE)
        rtl = _rtl(one(f"{_RTL}: INC+C, faster, {end}"))
        yield Row("12", f"{what}, RTL NICs", "VIII-A", times, "×", How.RTL, rtl, why=_LINKS, slow=True)
    measured: tuple[tuple[str, float, Value, str], ...] = (
        (both[0][0], 30.8, one(f"{_RTL}: {both[0][2]}"), ""),
        ("of a ring's communication, by the codec", 53.9, _of_the_ring, ""),
        (both[1][0], 70.9, extreme(min, rf"{_RTL}: [^:]+: INC\+C, communication saved"), _LINKS),
        (
            "of the communication, by ring and codec, most",
            80.7,
            extreme(max, rf"{_RTL}: [^:]+: INC\+C, communication saved"),
            _LINKS,
        ),
    )
    for what, saved, value, why in measured:
        yield Row("12", f"{what}, RTL NICs", "VIII-A", saved, "%", How.RTL, _rtl(value), why=why, slow=True)


def _of_the_ring(figures: Figures) -> float:
    """100 × (1 − a ÷ b), 100 less “…: ResNet-50: INC+C, communication saved” and “… INC, …”."""
    with_codec, without = (
        100 - figures[f"{_RTL}: ResNet-50: {name}, communication saved"] for name in ("INC+C", "INC")
    )
    return 100 * (1 - with_codec / without)


def _accuracy() -> Iterator[Row]:
    """Figures 13 and 14."""
    networks = ("cnn", "residual", "templates")
    names = f"({'|'.join(networks)})"
    for bound, shares in zip(BOUNDS, TABLE_III["HDC"], strict=True):
        found = _digits(one(f"hdc: INCEPTIONN 2^-{bound}, published: ratio"))
        what, why = f"HDC, 2^-{bound}: compression ratio", f"claimed: of table III's shares; {_ONE_SEED}"
        yield Row(
            "14", what, "VIII-C", ratio(shares), "×", How.TIED, found, why=why, stand_in=_DIGITS, slow=True
        )
    for what, section, points, pattern in (
        ("2^-10, no more epochs: accuracy lost, most", "VIII-B", 1.5, r"INCEPTIONN 2\^-10, published"),
        ("2^-6, no more epochs: accuracy lost, most", "VIII-C", 2.0, r"INCEPTIONN 2\^-6, published"),
        ("24 LSBs truncated: accuracy lost, most", "VIII-C", 62.4, "24 LSBs truncated"),
    ):
        lost = _others(extreme(max, f"{names}: {pattern}: lost", networks))
        yield Row("14", what, section, points, "points", How.TIED, lost, why=_SMALL, slow=True)
    broken = "published breaks its own bound, up to eightfold"
    for mode, why in (("published", f"{_SMALL}; {broken}"), ("strict", _SMALL)):
        equal = _others(
            extreme(min, rf"{names}: INCEPTIONN 2\^-10, {mode}: … with at most 2 epochs more", networks)
        )
        what = f"2^-10, {mode}: as accurate with 2 epochs more, least"
        yield Row("13", what, "VIII-B", 100.0, "% of trainings", How.TIED, equal, why=why, slow=True)
    equal = _digits(one("hdc: INCEPTIONN 2^-10, published: … with at most 2 epochs more"))
    what = "HDC, 2^-10, published: as accurate with 2 epochs more"
    yield Row(
        "13",
        what,
        "VIII-B",
        100.0,
        "% of trainings",
        How.TIED,
        equal,
        why=_ONE_SEED,
        stand_in=_DIGITS,
        slow=True,
    )


def _table_3() -> Iterator[Row]:
    """The digit classifier's; a share of 0.0 % has no ratio, and no row."""
    for bound, shares in zip(BOUNDS, TABLE_III["HDC"], strict=True):
        for bits, share in zip(FORM_BITS, shares, strict=True):
            if share:
                found = _digits(one(f"hdc: INCEPTIONN 2^-{bound}, published: {bits} bits"))
                what = f"HDC, 2^-{bound}: values of {bits} bits"
                yield Row(
                    "table-3",
                    what,
                    "VIII-C",
                    share,
                    "%",
                    How.TIED,
                    found,
                    why=_ONE_SEED,
                    stand_in=_DIGITS,
                    slow=True,
                )


def _engines() -> Iterator[Row]:
    for place, name in enumerate(("compressor", "decompressor")):
        what, why = f"{name}, 256 bits: bursts a cycle", "random values; of what cannot shrink 17 words for 16"
        yield Row("9", what, "VI-A", 1.0, "bursts", How.RTL, _verified(place), why=why)


def _fit(what: str, paper: str, claimed: float, unit: str, name: str, figure: str) -> Fit:
    return Fit(_EXCHANGE, what, paper, claimed, unit, _model(name), figure)


PAPER = Paper(
    name="inceptionn",
    title="INCEPTIONN: A Network-Centric Co-Design to Accelerate Distributed Training of DNNs",
    rows=(
        *_figure_3(),
        *_figure_7(),
        *_engines(),
        *_figure_12(),
        *_compressed(),
        *_accuracy(),
        *_table_2(),
        *_table_3(),
    ),
    fits=(
        _fit(
            "seconds of a byte",
            "AlexNet: 100 exchanges over an aggregator",
            _COMMUNICATE["AlexNet"],
            "s",
            "AlexNet: WA, communicate",
            "table-2",
        ),
        _fit(
            "seconds of an addition",
            "AlexNet: 100 sums at the aggregator",
            _SUM["AlexNet"],
            "s",
            "AlexNet: WA, gradient sum",
            "table-2",
        ),
        _fit(
            "seconds of a byte of the ring",
            "AlexNet: of the communication, by the ring",
            _SAVED["AlexNet"],
            "%",
            "AlexNet: INC, communication saved",
            "12",
        ),
        _fit(
            "share that no compression shortens",
            "ResNet-50: of the communication, by ring and codec",
            80.7,
            "%",
            "INC+C, communication saved, most",
            "12",
        ),
    ),
    pictures=(
        Picture(
            "15",
            "exchange time without compression, aggregator of four workers = 1",
            "workers",
            "× WA of 4",
            rf"(?:INCEPTIONN|{_RTL}), figure 15: "
            r"(?P<series>(?:WA|INC)(?:, measured)?), (?:workers )?(?P<x>\d+)(?: workers)?",
        ),
    ),
    not_here=(
        "Figure 3a, table I: sizes and hyperparameters of networks, which are inputs.",
        "Figure 4: curves without printed points; ours: fanin bench codec-training --figure 4.",
        "Figures 13 and 14, table III, of AlexNet, ResNet-50 and VGG-16, which take ImageNet.",
        "Figure 15: curves without printed points; drawn below, the model's formula and RTL NICs.",
    ),
)
