"""The node's shape, its presets, and the shape of a data set on nodes."""

from dataclasses import FrozenInstanceError, replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.base.errors import InputError
from fanin.glm.facts import PRESETS, GlmConfig, Partitioning, TrainShape
from fanin.wire.aggregation import Encap


@pytest.mark.parametrize(
    ("parameter", "value", "limit"),
    [
        ("engines", 0, "an integer in 1…8"),
        ("engines", 9, "an integer in 1…8"),
        ("lanes", 1, "a power of two in 2…64"),
        ("lanes", 48, "a power of two in 2…64"),
        ("depth", 0, "an integer in 1…4096"),
        ("sample_fifo", 7, "an integer in 8…65536"),
        ("slots", 12, "a power of two in 2…65536"),
        ("mac_width", 4, "a power of two in 8…512"),
        ("mac_width", 24, "a power of two in 8…512"),
        ("frac", 5, "an integer in 6…28"),
        ("frac", 29, "an integer in 6…28"),
    ],
)
def test_a_bad_parameter_names_itself_its_value_and_its_limit(parameter, value, limit):
    with pytest.raises(ValueError, match=f"^{parameter} must be {limit}, not {value}$"):
        GlmConfig(name="bad", **{parameter: value})


def test_mode_and_encapsulation_may_be_given_as_text_and_are_checked():
    node = GlmConfig(name="text", encap="udp", mode="data-parallel")
    assert node.encap is Encap.UDP
    assert node.mode is Partitioning.DATA_PARALLEL
    with pytest.raises(ValueError, match="'ring' is not a valid Partitioning"):
        GlmConfig(name="text", mode="ring")


def test_a_configuration_is_frozen_and_its_presets_too():
    with pytest.raises(FrozenInstanceError):
        PRESETS["tiny"].lanes = 16
    with pytest.raises(TypeError):
        PRESETS["mine"] = PRESETS["tiny"]


def test_presets_are_named_after_themselves():
    assert set(PRESETS) == {"tiny", "demo", "u280", "ecp5-25", "ecp5-45", "ecp5-85"}
    assert all(node.name == name for name, node in PRESETS.items())


def test_u280_is_the_papers_worker_at_full_speed():
    node = PRESETS["u280"]
    assert (node.engines, node.banks, node.lanes, node.word_bits) == (8, 8, 64, 512)
    assert (node.sample_ports, node.port_bits) == (16, 256)
    assert node.columns == 2_097_152
    shape = TrainShape(node=node, workers=1, samples=64, columns=node.columns, batch=64)
    t_l = 300  # 1.2 µs at 250 MHz
    assert node.sample_fifo >= shape.words_per_micro_batch + t_l + 48


def shape_of(node=PRESETS["demo"], **changes):
    default = {"workers": 1, "samples": 100, "columns": 31, "batch": 64, "precision": 4}
    return TrainShape(node=node, **(default | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 0}, "workers must be in 1…65,535, not 0"),
        ({"workers": 65_536}, "workers must be in 1…65,535, not 65,536"),
        ({"precision": 0}, "precision must be in 1…8 bits, not 0"),
        ({"precision": 9}, "precision must be in 1…8 bits, not 9"),
        ({"batch": 0}, "batch must be a positive multiple of 8, not 0"),
        ({"batch": 12}, "batch must be a positive multiple of 8, not 12"),
        ({"samples": 0}, "the data set is empty"),
        (
            {"columns": 1_000_000},
            "1,000,000 features need 15,625 chunks an engine, model memory holds 16: at most 1,024 features "
            "fit with 1 worker, or use --workers, --engines or --preset",
        ),
        ({"columns": 4097, "workers": 4}, "at most 4,096 features fit with 4 workers"),
    ],
)
def test_what_does_not_fit_says_what_would(changes, message):
    with pytest.raises(InputError) as error:
        shape_of(**changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sample_fifo_that_is_too_short_says_what_would_fit():
    node = replace(PRESETS["demo"], sample_fifo=16)
    shape_of(node, columns=256, precision=4)
    with pytest.raises(InputError) as error:
        shape_of(node, columns=257, precision=4)
    assert "5 chunks × 4 bits = 20 words an engine, the sample FIFO holds 16" in str(error.value)
    assert "at most 256 features fit with 1 worker" in str(error.value)


@given(
    engines=st.integers(1, 8),
    workers=st.integers(1, 32),
    columns=st.integers(1, 4000),
    data_parallel=st.booleans(),
)
def test_what_the_limit_says_fits_does_fit_and_one_more_does_not(engines, workers, columns, data_parallel):
    mode = Partitioning.DATA_PARALLEL if data_parallel else Partitioning.MODEL_PARALLEL
    node = GlmConfig(name="limit", engines=engines, lanes=8, depth=5, mode=mode)
    batch = 8 * workers
    limit = engines * 8 * 5 * (1 if data_parallel else workers)
    if columns <= limit:
        shape = shape_of(node, workers=workers, columns=columns, batch=batch)
        assert shape.chunks == ceil(columns / (limit / 5))
    else:
        with pytest.raises(InputError, match=f"at most {limit:,} features"):
            shape_of(node, workers=workers, columns=columns, batch=batch)


def test_data_parallel_workers_have_equal_shares_of_a_mini_batch():
    node = replace(PRESETS["demo"], mode=Partitioning.DATA_PARALLEL)
    with pytest.raises(InputError, match="on 3 workers: batch must be a positive multiple of 3, not 64"):
        shape_of(node, workers=3)
    assert shape_of(node, workers=4).micro_batches == 2
    assert [shape_of(node, workers=4, batch=batch).micro_batches for batch in (4, 16, 32, 36)] == [1, 1, 1, 2]
    with pytest.raises(InputError, match="at most 1,024 features fit with 4 workers, or use --engines"):
        shape_of(node, workers=4, columns=1025)


def test_model_parallel_counts():
    node = GlmConfig(name="count", engines=2, lanes=8, depth=4)
    shape = shape_of(node, workers=3, samples=149, columns=100, batch=64, precision=3)
    assert (shape.columns_per_worker, shape.columns_per_engine, shape.chunks) == (34, 17, 3)
    assert (shape.words_per_micro_batch, shape.mini_batches) == (9, 3)
    assert (shape.micro_batches, shape.micro_batches_per_epoch) == (8, 19)


@pytest.mark.parametrize(
    ("samples", "per_worker"), [(64, 16), (65, 17), (80, 32), (100, 32), (128, 32), (5, 5)]
)
def test_data_parallel_counts_are_those_of_worker_0(samples, per_worker):
    node = replace(PRESETS["demo"], mode=Partitioning.DATA_PARALLEL)
    shape = shape_of(node, workers=4, samples=samples)
    assert shape.samples_per_worker == per_worker
    assert shape.micro_batches_per_epoch == ceil(per_worker / 8)


@pytest.mark.parametrize(
    ("samples", "batch", "per_worker", "micro_batches"),
    [(64, 16, 16, 4), (66, 16, 18, 5), (40, 40, 10, 2), (84, 40, 24, 5), (119, 40, 30, 6), (3, 4, 1, 1)],
)
def test_data_parallel_mini_batches_begin_a_micro_batch(samples, batch, per_worker, micro_batches):
    node = replace(PRESETS["demo"], mode=Partitioning.DATA_PARALLEL)
    shape = shape_of(node, workers=4, samples=samples, batch=batch)
    assert shape.samples_per_worker == per_worker
    assert shape.micro_batches_per_epoch == micro_batches


@pytest.mark.parametrize("changed", [{"encap": "l2"}, {"encap": "udp", "mac_width": 8}])
def test_a_node_without_an_address_or_of_a_narrow_mac_is_not_pinged(changed):
    assert GlmConfig(name="pinged", encap="udp", mac_width=16, ping=True).ping
    with pytest.raises(ValueError, match=r"^ping must be off without an IPv4 address"):
        GlmConfig(name="pinged", ping=True, **changed)


VANILLA = replace(PRESETS["tiny"], vanilla=True)  # 64 words, 4 slots


@pytest.mark.parametrize(
    ("node", "columns", "batch", "cause"),
    [
        (PRESETS["tiny"], 8, 8, "the nodes were made without it"),
        (
            VANILLA,
            16,
            40,
            "5 micro-batches of 8 words an engine, 40 words; .*slots 4 .*: --batch 32 fits",
        ),
        (VANILLA, 32, 40, "5 micro-batches of 16 words an engine, 80 words; .*: --batch 32 fits"),
        (replace(VANILLA, sample_fifo=63), 32, 32, "4 micro-batches of 16 words .*: --batch 24 fits"),
        (replace(VANILLA, protocol="switchml"), 16, 24, "the slots 2 micro-batches: --batch 16 fits"),
    ],
)
def test_without_overlap_a_mini_batch_must_find_room_between_forward_and_backward(node, columns, batch, cause):
    shape = {"workers": 1, "samples": 80, "columns": columns, "batch": batch}
    with pytest.raises(InputError, match=f"^vanilla: .*{cause}"):
        TrainShape(node=node, vanilla=True, **shape)
    TrainShape(node=node, **shape)


def test_vanilla_is_model_parallelism():
    with pytest.raises(ValueError, match="vanilla must be off in data-parallel mode"):
        replace(VANILLA, mode=Partitioning.DATA_PARALLEL)
