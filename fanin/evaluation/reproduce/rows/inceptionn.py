"""Rows of the paper INCEPTIONN: its numbers, their measurements, and explanations of differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fanin.evaluation.origins.graph import identifier
from fanin.evaluation.reproduce.row import Derivation, Fit, Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.rows.codec_rate import COMPRESSOR, DECOMPRESSOR, codec_rate
from fanin.evaluation.reproduce.value import Figures, Value, extreme, figure_value
from fanin.sim.codec.tags import BOUNDS, FORM_BITS, TABLE_III, ratio

#: Settings of the NICs in RTL: description by identifier. A row's own number is that of ``_PAPER_SETTING``.
_SETTINGS = {
    "mhz_250": "NIC at 250 MHz, hosts take no time",
    "mhz_100": "NIC at 100 MHz, hosts take no time",
    "mhz_250_hosts_1us": "NIC at 250 MHz, hosts take 1 µs a packet",
}
_PAPER_SETTING = "mhz_100"
# Numbers of the paper, by network.
#: Table II: seconds of 100 iterations, communication with an aggregator and sums at the aggregator.
_COMMUNICATE_SECONDS = {"AlexNet": 148.71, "HDC": 1.36, "ResNet-50": 60.58, "VGG-16": 583.58}
_SUM_SECONDS = {"AlexNet": 8.94, "HDC": 0.09, "ResNet-50": 3.68, "VGG-16": 19.89}
#: communication's share of the training time, in %; AlexNet's is fitted
_COMMUNICATION_PERCENT = {"HDC": 80.2, "ResNet-50": 80.2, "VGG-16": 70.9}
#: communication that the ring saves, in % of the aggregator's
_SAVED_PERCENT = {"AlexNet": 55.0, "HDC": 39.0, "ResNet-50": 58.0, "VGG-16": 36.0}
#: training time that the ring saves, in % of the aggregator's
_TIME_SAVED_PERCENT = {"AlexNet": 52.0, "HDC": 38.0, "ResNet-50": 49.0, "VGG-16": 31.0}
_PREDICTED = ("HDC", "ResNet-50", "VGG-16")  # networks whose times the model predicts; AlexNet's are fitted

_EXCHANGE = "exchange"  # the model of section VIII-D
_LINK_RATES = "links at their rate; the paper's hosts reach a part of it, and another part for each network"
_GIVEN_SAVING = "given the communication that the ring saves, as figure 12 has it"
_VGG_TIMES = "VGG-16's bytes take 335 s at AlexNet's rate; the paper measured 584"
_WIRE_TIME = "nearly all of it is bytes over links of 10 Gb/s, which are inputs"
_FEWER_TRANSFERS = "the ring's 1.5 transfers of a gradient over the aggregator's 7 save 78.6 % without any RTL"
_ONE_SEED = "one training"
_DIGITS_NOTE = "the digits that scikit-learn ships, MNIST's kin of 8 × 8 pixels"
_NETWORKS_NOTE = (
    "theirs: AlexNet, ResNet-50, VGG-16 on ImageNet; ours: three small networks, two trainings each"
)
_HOST = "our processor, one core, and gradients of digits; theirs: a Xeon E5-2640, all of a training"


def _model(name: str) -> Measurement:
    """Return the measurement of a number of the model of section VIII-D."""
    return Measurement(("bench", "ring", "--models"), figure_value(f"inceptionn.model.{name}"), folder=True)


_ValueOfSetting = Callable[[str], Value]  # from a key of ``_SETTINGS`` to the number in that setting


def _rtl(
    quantity: str,
    section: str,
    figure: str,
    claimed: float,
    unit: str,
    value: _ValueOfSetting,
    explanation: str,
) -> Row:
    """Return the row of a number over RTL NICs at the paper's clock, with the other settings."""
    measurement = Measurement(("bench", "inceptionn"), value(_PAPER_SETTING), folder=True)
    settings = {text: value(setting) for setting, text in _SETTINGS.items()}
    quantity = f"{quantity}, RTL NICs"
    return Row(
        figure,
        quantity,
        section,
        claimed,
        unit,
        measurement,
        explanation=explanation,
        settings=settings,
        slow=True,
    )


def _rtl_figure(figure: str) -> _ValueOfSetting:
    """Return a function from a key of ``_SETTINGS`` to the value of a figure over RTL NICs."""
    return lambda setting: figure_value(f"inceptionn.rtl.{setting}.{figure}")


def _training(value: Value, *options: str) -> Measurement:
    """Return a measurement by ``fanin bench codec-training``."""
    return Measurement(("bench", "codec-training", *options), value, folder=True)


def _digits(value: Value) -> Measurement:
    """Return the measurement of the paper's digit classifier with each codec."""
    options = ("bench", "codec-training", "--figure", "14", "--networks", "hdc", "--seeds", "1")
    return Measurement(options, value, folder=True, data={"mnist": ("--mnist", "{}")})


def _small_networks(value: Value) -> Measurement:
    return _training(value, "--figure", "14", "--networks", "cnn", "residual", "templates", "--seeds", "2")


def _table_2() -> Iterator[Row]:
    """Yield rows of table II: by the model, except AlexNet's, and over RTL NICs."""
    for network, seconds in _COMMUNICATE_SECONDS.items():
        quantity = f"{network}: 100 exchanges over an aggregator"
        explanation = _VGG_TIMES if network == "VGG-16" else ""
        network_id = identifier(network)
        if network in _PREDICTED:
            model = _model(f"{network_id}.wa.communicate_s")
            yield Row(
                "table-2", quantity, "VII-C", seconds, "s", model, explanation=explanation, model=_EXCHANGE
            )
            sum_quantity, model = f"{network}: 100 sums at the aggregator", _model(f"{network_id}.wa.sum_s")
            yield Row("table-2", sum_quantity, "VII-C", _SUM_SECONDS[network], "s", model, model=_EXCHANGE)
        explanation = "; ".join(filter(None, (_WIRE_TIME, explanation)))
        yield _rtl(
            quantity,
            "VII-C",
            "table-2",
            seconds,
            "s",
            _rtl_figure(f"{network_id}.wa.communicate_s"),
            explanation,
        )


def _figure_3() -> Iterator[Row]:
    """Yield rows of figures 3b and 5, which one command measures."""
    command = ("--figure", "3", "--figure", "5", "--networks", "hdc", "--seeds", "1")
    for network, share in _COMMUNICATION_PERCENT.items():
        measurement = _training(
            figure_value(f"inceptionn.figure_3.{identifier(network)}.communication"), *command
        )
        explanation = _VGG_TIMES if network == "VGG-16" else ""
        quantity = f"{network}: of the time, communication"
        yield Row("3b", quantity, "II-B", share, "%", measurement, explanation=explanation, model=_EXCHANGE)
    measurement = _training(extreme(min, "inceptionn.figure_5.hdc.*.within_1"), *command)
    explanation = "theirs: AlexNet; ours: the digit classifier"
    yield Row(
        "5", "gradients between -1 and 1", "III-B", 100.0, "% of values", measurement, explanation=explanation
    )


def _figure_7() -> Iterator[Row]:
    """Yield rows of figure 7: training time with compression on the hosts."""
    patterns = [f"inceptionn.figure_7.{codec}.early.*" for codec in ("snappy", "sz3_2_10")]
    for select, name, times in ((min, "least", 2.0), (max, "most", 4.0)):
        options = ("--figure", "7", "--networks", "hdc", "--seeds", "1")
        measurement = _training(extreme(select, *patterns), *options)
        quantity = f"training time, Snappy and SZ on the host, {name}"
        yield Row("7", quantity, "VI", times, "× without", measurement, explanation=_HOST)


def _figure_12() -> Iterator[Row]:
    """Yield rows of figure 12 without the codec, by the model and over RTL NICs."""
    for network, percent in _SAVED_PERCENT.items():
        figure = f"{identifier(network)}.inc.communication_saved"
        quantity = f"{network}: of the communication, by the ring"
        explanation = _LINK_RATES + (f"; {_VGG_TIMES}" if network == "VGG-16" else "")
        if network in _PREDICTED:
            yield Row(
                "12", quantity, "VIII-A", percent, "%", _model(figure), explanation=explanation, model=_EXCHANGE
            )
        yield _rtl(
            quantity, "VIII-A", "12", percent, "%", _rtl_figure(figure), f"{_FEWER_TRANSFERS}; {explanation}"
        )
    for network, percent in _TIME_SAVED_PERCENT.items():
        quantity = f"{network}: of the training time, by the ring"
        model, derivation = _model(f"{identifier(network)}.inc.time_saved"), _time_saved(network)
        yield Row(
            "12",
            quantity,
            "VIII-A",
            percent,
            "%",
            model,
            explanation=_GIVEN_SAVING,
            model=_EXCHANGE,
            derivation=derivation,
        )


def _time_saved(network: str) -> Derivation:
    """Return the algebra of the training's time without the ring's savings, from the printed numbers."""

    def value(facts: Figures) -> float:
        local, sums, communicate, total, saved = (
            facts[f"{identifier(network)}.{name}"]
            for name in ("local", "sum", "communicate", "total", "saved_communication")
        )
        # In a ring each of the paper's four workers adds a quarter of the gradient.
        return 100 * (1 - (local + sums / 4 + (1 - saved / 100) * communicate) / total)

    return Derivation("table II's seconds and figure 12's saved communication", value)


def _figure_12_with_codec() -> Iterator[Row]:
    """Yield rows of figure 12 with the codec, by the model and over RTL NICs."""
    model_numbers = (
        (
            "AlexNet: of an aggregator's communication, by the codec",
            30.8,
            "alexnet.wa_with_c.communication_saved",
        ),
        ("of the communication, by ring and codec, least", 70.9, "inc_with_c.communication_saved.least"),
    )
    for (quantity, percent, name), explanation in zip(model_numbers, ("", _GIVEN_SAVING), strict=True):
        yield Row(
            "12", quantity, "VIII-A", percent, "%", _model(name), explanation=explanation, model=_EXCHANGE
        )
    for end, times in (("least", 2.2), ("most", 3.1)):
        quantity = f"speed-up by ring and codec, {end} of four networks"
        model = _model(f"inc_with_c.faster.{end}")
        yield Row("12", quantity, "VIII-A", times, "×", model, explanation=_GIVEN_SAVING, model=_EXCHANGE)
        yield _rtl(quantity, "VIII-A", "12", times, "×", _rtl_figure(f"inc_with_c.faster.{end}"), _LINK_RATES)
    highest = "of the communication, by ring and codec, most"
    rtl_numbers: tuple[tuple[str, float, _ValueOfSetting, str], ...] = (
        (model_numbers[0][0], 30.8, _rtl_figure(model_numbers[0][2]), ""),
        ("of a ring's communication, by the codec", 53.9, _rtl_figure("resnet_50.inc.saved_by_codec"), ""),
        (model_numbers[1][0], 70.9, lambda setting: extreme(min, _SAVED_BY_BOTH.format(setting)), _LINK_RATES),
        (highest, 80.7, lambda setting: extreme(max, _SAVED_BY_BOTH.format(setting)), _LINK_RATES),
    )
    for quantity, percent, value, explanation in rtl_numbers:
        yield _rtl(quantity, "VIII-A", "12", percent, "%", value, explanation)


_SAVED_BY_BOTH = "inceptionn.rtl.{}.*.inc_with_c.communication_saved"


def _accuracy() -> Iterator[Row]:
    """Yield rows of figures 13 and 14."""
    networks = ("cnn", "residual", "templates")
    for bound, shares in zip(BOUNDS, TABLE_III["HDC"], strict=True):
        measurement = _digits(figure_value(f"inceptionn.training.hdc.inceptionn_2_{bound}_published.ratio"))
        quantity = f"HDC, 2^-{bound}: compression ratio"
        explanation = f"claimed: of table III's shares; {_ONE_SEED}"
        yield Row(
            "14",
            quantity,
            "VIII-C",
            ratio(shares),
            "×",
            measurement,
            explanation=explanation,
            stand_in=_DIGITS_NOTE,
            slow=True,
        )
    for quantity, section, points, codec in (
        ("2^-10, no more epochs: accuracy lost, most", "VIII-B", 1.5, "inceptionn_2_10_published"),
        ("2^-6, no more epochs: accuracy lost, most", "VIII-C", 2.0, "inceptionn_2_6_published"),
        ("24 LSBs truncated: accuracy lost, most", "VIII-C", 62.4, "24_lsbs_truncated"),
    ):
        lost = _small_networks(extreme(max, *(f"inceptionn.training.{name}.{codec}.lost" for name in networks)))
        yield Row("14", quantity, section, points, "points", lost, explanation=_NETWORKS_NOTE, slow=True)
    broken_bound = "published breaks its own bound, up to eightfold"
    for mode, explanation in (("published", f"{_NETWORKS_NOTE}; {broken_bound}"), ("strict", _NETWORKS_NOTE)):
        codec = f"inceptionn_2_10_{mode}.few_more_epochs"
        equal = _small_networks(extreme(min, *(f"inceptionn.training.{name}.{codec}" for name in networks)))
        quantity = f"2^-10, {mode}: as accurate with 2 epochs more, least"
        yield Row("13", quantity, "VIII-B", 100.0, "% of trainings", equal, explanation=explanation, slow=True)
    equal = _digits(figure_value("inceptionn.training.hdc.inceptionn_2_10_published.few_more_epochs"))
    quantity = "HDC, 2^-10, published: as accurate with 2 epochs more"
    yield Row(
        "13",
        quantity,
        "VIII-B",
        100.0,
        "% of trainings",
        equal,
        explanation=_ONE_SEED,
        stand_in=_DIGITS_NOTE,
        slow=True,
    )


def _table_3() -> Iterator[Row]:
    """Yield rows of the digit classifier in table III; a share of 0.0 % has no ratio, hence no row."""
    for bound, shares in zip(BOUNDS, TABLE_III["HDC"], strict=True):
        for bits, share in zip(FORM_BITS, shares, strict=True):
            if share:
                measurement = _digits(
                    figure_value(f"inceptionn.training.hdc.inceptionn_2_{bound}_published.bits_{bits}")
                )
                quantity = f"HDC, 2^-{bound}: values of {bits} bits"
                yield Row(
                    "table-3",
                    quantity,
                    "VIII-C",
                    share,
                    "%",
                    measurement,
                    explanation=_ONE_SEED,
                    stand_in=_DIGITS_NOTE,
                    slow=True,
                )


def _figure_9() -> Iterator[Row]:
    """Yield rows of figure 9: rates of compressor and decompressor."""
    for part, name in ((COMPRESSOR, "compressor"), (DECOMPRESSOR, "decompressor")):
        rate = codec_rate("inceptionn", part, "--mode", "published")
        quantity = f"{name}, 256 bits: bursts a cycle"
        explanation = "random values; of what cannot shrink 17 words for 16"
        yield Row("9", quantity, "VI-A", 1.0, "bursts", rate, explanation=explanation)


def _fit(fitted_input: str, claim: str, claimed: float, unit: str, name: str, figure: str) -> Fit:
    return Fit(_EXCHANGE, fitted_input, claim, claimed, unit, _model(name), figure)


PAPER = Paper(
    name="inceptionn",
    title="INCEPTIONN: A Network-Centric Co-Design to Accelerate Distributed Training of DNNs",
    rows=(
        *_figure_3(),
        *_figure_7(),
        *_figure_9(),
        *_figure_12(),
        *_figure_12_with_codec(),
        *_accuracy(),
        *_table_2(),
        *_table_3(),
    ),
    fits=(
        _fit(
            "seconds of a byte",
            "AlexNet: 100 exchanges over an aggregator",
            _COMMUNICATE_SECONDS["AlexNet"],
            "s",
            "alexnet.wa.communicate_s",
            "table-2",
        ),
        _fit(
            "seconds of an addition",
            "AlexNet: 100 sums at the aggregator",
            _SUM_SECONDS["AlexNet"],
            "s",
            "alexnet.wa.sum_s",
            "table-2",
        ),
        _fit(
            "seconds of a byte of the ring",
            "AlexNet: of the communication, by the ring",
            _SAVED_PERCENT["AlexNet"],
            "%",
            "alexnet.inc.communication_saved",
            "12",
        ),
        _fit(
            "share that no compression shortens",
            "ResNet-50: of the communication, by ring and codec",
            80.7,
            "%",
            "inc_with_c.communication_saved.most",
            "12",
        ),
    ),
    pictures=(
        Picture(
            "15",
            "exchange time without compression, aggregator of four workers = 1",
            "workers",
            "× WA of 4",
            (
                "inceptionn.figure_15.*",
                f"inceptionn.rtl.figure_15.{_PAPER_SETTING}.wa.*",
                f"inceptionn.rtl.figure_15.{_PAPER_SETTING}.inc.*",
            ),
        ),
    ),
    not_here=(
        "Figure 3a, table I: sizes and hyperparameters of networks, which are inputs.",
        "Figure 4: curves without printed points; ours: fanin bench codec-training --figure 4.",
        "Figures 13 and 14, table III, of AlexNet, ResNet-50 and VGG-16, which take ImageNet.",
        "Figure 15: curves without printed points; drawn below, the model's formula and RTL NICs.",
    ),
)
