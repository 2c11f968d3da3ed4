"""CLUSTER: shipped parts against their data sheets, TOML files, and what is wrong with one in one line."""

import random

import pytest

from fanin.base.errors import InputError
from fanin.cnn.layers.family import RamKind, family
from fanin.planner.cluster import load_cluster

PART = {
    "family": '"arria10"',
    "dsp": "1500",
    "ram_bits": "35_000_000",
    "dram_gbps": "50",
    "network_gbps": "40",
    "clock_mhz": "100",
    "connections": "6",
}


def toml(*devices, **top):
    """A cluster file of tables of TOML values."""
    lines = [f"{key} = {value}" for key, value in top.items()]
    for device in devices:
        lines += ["[[device]]", *(f"{key} = {value}" for key, value in device.items())]
    return "\n".join(lines)


@pytest.fixture
def write(tmp_path):
    """Save a cluster file."""

    def run(text):
        path = tmp_path / "rack.toml"
        path.unlink(missing_ok=True)  # to overwrite it takes a disk longer
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return run


@pytest.fixture
def load(write):
    return lambda *devices, **top: load_cluster(write(toml(*devices, **top)))


@pytest.fixture
def refuse(write):
    """The one line that a file is refused with, without the file."""

    def run(text):
        path = write(text)
        said = said_of(path)
        assert len(said.splitlines()) == 1
        assert said.startswith(f"{path}: ")
        return said.removeprefix(f"{path}: ")

    return run


def said_of(name):
    try:
        load_cluster(name)
    except InputError as error:
        return str(error)
    return ""


def names(cluster):
    return [device.name for device in cluster.devices]


def test_arria10_is_that_of_nada_s_table_iv():
    cluster = load_cluster("arria10x6")
    assert (cluster.name, cluster.host) == ("arria10x6", 0)
    assert names(cluster) == [f"fpga{n}" for n in range(6)]
    (part,) = cluster.parts
    assert (part.family, part.dsp, part.connections) == (family("arria10"), 1500, 6)
    assert (part.ram_bits, part.ram_blocks) == (None, (2460,))
    assert (part.dram, part.network, part.clock) == (50 * 10**9, 40 * 10**9, 100 * 10**6)


def test_other_shipped_parts_count_blocks_within_their_data_sheets():
    (u280,), (ecp5,) = load_cluster("u280x2").parts, load_cluster("ecp5-85x3").parts
    assert [kind.name for kind in u280.family.ram] == ["bram18", "uram"]
    assert u280.ram_bits is ecp5.ram_bits is None
    assert all(n <= there for n, there in zip((u280.dsp, *u280.ram_blocks), (9024, 4032, 960), strict=True))
    assert u280.dram <= 460 * 8 * 10**9 / 2
    assert ecp5.dsp <= 156
    assert ecp5.ram_blocks <= (208,)
    assert ecp5.dram == 6_400_000_000


@pytest.mark.parametrize(
    "name",
    ["arria10x0", "arria10x65", "u280x-1", "ecp5-85x" + "9" * 5000, "arria10x٣", "arria10", "x3", "arria10x"],
)
def test_a_number_of_devices_that_cannot_be(name):
    assert said_of(name).startswith(f"{name}: ")


def test_a_name_that_is_no_cluster(tmp_path):
    kinds = "must be a .toml file or one of arria10xN, u280xN, ecp5-85xN"
    assert said_of("virtexx3") == f"virtexx3: {kinds}"
    assert said_of("") == f": {kinds}"
    assert said_of("cluster.json") == f"cluster.json: {kinds}"
    assert said_of(f"{tmp_path}/none.toml") == f"{tmp_path}/none.toml: no such file"
    (tmp_path / "folder.toml").mkdir()
    assert said_of(f"{tmp_path}/folder.toml") == f"{tmp_path}/folder.toml: cannot be read: Is a directory"
    assert said_of("a" * 5000 + ".toml").endswith(": File name too long")


def test_a_device_field_by_field(load):
    cluster = load({**PART, "name": '"left"', "dram_gbps": "12.8", "clock_mhz": "0.3"})
    assert (cluster.name, names(cluster)) == ("rack", ["left"])
    (part,) = cluster.parts
    assert (part.dram, part.network, part.clock) == (12_800_000_000, 40 * 10**9, 300_000)
    assert part == load({**PART, "dram_gbps": "1.28e1", "clock_mhz": "3e-1", "name": '"a"'}).parts[0]


def test_a_part_stands_where_a_device_says_nothing(load):
    cluster = load({"part": '"u280"', "clock_mhz": "300", "dsp": "9000"})
    (part,), (shipped,) = cluster.parts, load_cluster("u280x1").parts
    assert (part.clock, part.dsp) == (300 * 10**6, 9000)
    assert (part.family, part.ram_blocks, part.dram) == (shipped.family, shipped.ram_blocks, shipped.dram)
    assert load({"part": '"u280"'}).parts == (shipped,)


def test_ram_said_anew_replaces_both_ways_of_the_part(load):
    (bits,) = load({"part": '"u280"', "ram_bits": "1000"}).parts
    assert (bits.ram_bits, bits.ram_blocks) == (1000, None)
    (blocks,) = load({"part": '"arria10"', "ram": '[{kind = "m20k", blocks = 2713}]'}).parts
    assert (blocks.ram_bits, blocks.ram_blocks) == (None, (2713,))
    both = {"part": '"arria10"', "ram": '[{kind = "m20k", blocks = 2713}]', "ram_bits": "55_000_000"}
    assert load(both).parts[0].ram_bits == 55_000_000
    assert load(both).parts[0].ram_blocks == (2713,)


def test_dram_has_a_size_or_any(load):
    assert load({**PART, "dram_gib": "0.5"}).parts[0].dram_bytes == 1 << 29
    assert load(PART).parts[0].dram_bytes is None


def test_blocks_of_any_shape(load):
    big = '{kind = "big", blocks = 3, shapes = [[4096, 72], [8192, 36]], from_bits = 9000}'
    (part,) = load({**PART, "ram": f"[{big}, {{blocks = 7, shapes = [[64, 8]]}}]"}).parts
    assert part.family.ram == (RamKind("ram1", 0, ((64, 8),)), RamKind("big", 9000, ((4096, 72), (8192, 36))))
    assert part.ram_blocks == (7, 3)  # in the order of the kinds
    known = '[{kind = "uram", blocks = 3, shapes = [[4096, 64]]}, {kind = "bram18", blocks = 7, from_bits = 0}]'
    (part,) = load({"part": '"u280"', "ram": known}).parts
    assert part.family.ram == (family("ultrascale").ram[0], RamKind("uram", 147456, ((4096, 64),)))


def test_devices_are_counted_named_and_mixed(load):
    cluster = load(
        {"part": '"arria10"', "count": "2"},
        {"part": '"u280"', "name": '"big"'},
        {"part": '"arria10"', "name": '"old"', "count": "2"},
        {"part": '"u280"'},
        host='"big"',
    )
    assert names(cluster) == ["fpga0", "fpga1", "big", "old3", "old4", "fpga5"]
    assert cluster.host == 2
    assert [cluster.parts.index(device.part) for device in cluster.devices] == [0, 0, 1, 0, 0, 1]


def test_the_host_is_at_the_first_device_unless_said(load):
    assert load(PART, PART).host == 0
    assert load(PART, PART, host='"fpga1"').host == 1


def test_the_first_devices_of_a_cluster_include_the_host_s(load):
    cluster = load(*4 * [PART], host='"fpga2"')
    assert [names(cluster.first(count)) for count in (1, 2, 3, 4)] == [
        ["fpga2"],
        ["fpga0", "fpga2"],
        ["fpga0", "fpga1", "fpga2"],
        ["fpga0", "fpga1", "fpga2", "fpga3"],
    ]
    assert [cluster.first(count).host for count in (1, 2, 3, 4)] == [0, 1, 2, 2]
    for count in (0, 5):
        with pytest.raises(InputError, match=f"rack: has 4 devices, not {count}"):
            cluster.first(count)


@pytest.mark.parametrize("field", PART)
def test_a_missing_field_is_named(refuse, field):
    device = {key: value for key, value in PART.items() if key != field}
    assert refuse(toml(PART, device)).startswith(f"device 1: {field} is missing")
    assert refuse(toml(PART, {**device, "name": '"b"'})).startswith(f"device b: {field} is missing")


@pytest.mark.parametrize("field", [field for field in PART if field != "family"])
@pytest.mark.parametrize(
    "value", ["-1", "-0.5", '"1"', "true", "nan", "inf", "-inf", "[]", "{}", "1979-05-27", "1e300"]
)
def test_a_field_that_is_no_number_of_at_least_0_is_named(refuse, field, value):
    said = refuse(toml({**PART, field: value}))
    assert said.startswith(f"device 0: {field} must be a")
    assert ", not " in said


@pytest.mark.parametrize("field", ["dsp", "ram_bits", "connections"])
@pytest.mark.parametrize("value", ["1.5", "2.0", str(1 << 48), "0x" + "f" * 5000])
def test_a_field_that_is_no_integer_within_reason_is_named(refuse, field, value):
    assert refuse(toml({**PART, field: value})).startswith(f"device 0: {field} must be an integer in 0…")


@pytest.mark.parametrize("field", ["dram_gbps", "network_gbps", "clock_mhz"])
@pytest.mark.parametrize("value", ["1000000", "1e7", "0x" + "f" * 5000])
def test_a_rate_beyond_reason_is_named(refuse, field, value):
    assert " 0 and below 1000000, not " in refuse(toml({**PART, field: value}))


def test_a_clock_runs(refuse, load):
    assert refuse(toml({**PART, "clock_mhz": "0"})).startswith(
        "device 0: clock_mhz must be a number above 0 and"
    )
    assert refuse(toml({**PART, "clock_mhz": "1e-7"})).startswith(
        "device 0: clock_mhz must be a number above 0"
    )
    idle = {"dsp": "0", "ram_bits": "0", "dram_gbps": "0", "network_gbps": "0.0", "connections": "0"}
    assert load({**PART, **idle}).parts[0].network == 0


M20K = 'kind = "m20k", blocks = 1'


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"family": '"virtex"'}, "family: no 'virtex'; families are arria10, ultrascale, ecp5"),
        ({"family": '["arria10"]'}, "family: no ['arria10']; families are"),
        ({"family": "10"}, "family: no 10; families are"),
        ({"part": '"virtex"'}, "part: no 'virtex'; parts are arria10, u280, ecp5-85"),
        ({"part": "[]"}, "part: no []; parts are"),
        ({"part": "{}"}, "part: no {}; parts are"),
        ({"connections": "9"}, "connections: Ethernet has 8 priorities, not 9"),
        ({"count": "0"}, "count must be an integer in 1…281474976710655, not 0"),
        ({"count": "65"}, "count: a cluster has at most 64 devices"),
        ({"count": "2.0"}, "count must be an integer in 1…"),
        ({"count": "true"}, "count must be an integer in 1…"),
        (
            {"dsps": "1"},
            "there is no field dsps (fields: clock_mhz, connections, count, dram_gbps, dram_gib, dsp, family, ",
        ),
        ({'"a\\nb"': "1"}, "there is no field a b (fields: "),
        ({"ram": "[]"}, "ram must be a list of tables with blocks, and kind or shapes"),
        ({"ram": "7"}, "ram must be a list of tables"),
        ({"ram": "[7]"}, "ram must be a list of tables"),
        ({"ram": '[{kind = "m20k"}]'}, "ram: blocks is missing"),
        ({"ram": '[{kind = "m20k", blocks = -1}]'}, "ram: blocks must be an integer in 0…"),
        ({"ram": "[{blocks = 1}]"}, "ram: kind must be one of m20k (or give shapes)"),
        ({"ram": '[{kind = "ebr", blocks = 1}]'}, "ram: kind must be one of m20k (or give shapes)"),
        ({"ram": "[{kind = [], blocks = 1}]"}, "ram: kind must be up to 64 letters, digits, _ . or -, not []"),
        ({"ram": '[{kind = "a b", blocks = 1, shapes = [[1, 1]]}]'}, "ram: kind must be up to 64 letters"),
        (
            {"ram": f"[{{{M20K}, size = 1}}]"},
            "ram: there is no field size (fields: blocks, from_bits, kind, shapes)",
        ),
        ({"ram": f"[{{{M20K}, from_bits = -1}}]"}, "ram: from_bits must be an integer in 0…"),
        (
            {"ram": f"[{{{M20K}, from_bits = 1}}]"},
            "ram: one kind must take memories of any size (from_bits = 0)",
        ),
        ({"ram": f"[{{{M20K}, shapes = []}}]"}, "ram: shapes must be a list of [depth, width]"),
        ({"ram": f"[{{{M20K}, shapes = 5}}]"}, "ram: shapes must be a list of [depth, width]"),
        ({"ram": f"[{{{M20K}, shapes = [[512]]}}]"}, "ram: a shape is [depth, width], not [512]"),
        ({"ram": f"[{{{M20K}, shapes = [512, 40]}}]"}, "ram: a shape is [depth, width], not 512"),
        ({"ram": f"[{{{M20K}, shapes = [[0, 40]]}}]"}, "ram: depth must be an integer in 1…"),
        ({"ram": f"[{{{M20K}, shapes = [[512, 0]]}}]"}, "ram: width must be an integer in 1…"),
        ({"ram": f"[{{{M20K}, shapes = [[512, 4.0]]}}]"}, "ram: width must be an integer in 1…"),
        ({"ram": f"[{{{M20K}}}, {{{M20K}, from_bits = 9}}]"}, "ram: two entries have kind = 'm20k'"),
        ({"ram": f"[{{{M20K}}}, {{blocks = 1, shapes = [[1, 1]]}}]"}, "ram: two entries have from_bits = 0"),
    ],
)
def test_a_bad_field_is_named(refuse, changes, said):
    assert refuse(toml({**PART, **changes})).startswith(f"device 0: {said}")


@pytest.mark.parametrize("name", ['""', '"a b"', '"a/b"', '"a\\nb"', "5", "[1]", "{}", "true", f'"{65 * "a"}"'])
def test_a_name_that_is_none(refuse, name):
    assert "name must be up to 64 letters, digits, _ . or -, not " in refuse(toml({**PART, "name": name}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[device]]"),
        ("device = []", "no [[device]]"),
        ("device = 5", "no [[device]]"),
        ("device = [5]", "no [[device]]"),
        ("[device]\nname = 'a'", "no [[device]]"),
        ("[[devices]]\nname = 'a'", "there is no field devices (fields: device, host)"),
        (toml(PART, host='"fpga1"'), "host: no device is called 'fpga1'"),
        (toml(PART, host="0"), "host: no device is called 0"),
        (toml(PART, host="[]"), "host: no device is called []"),
        (toml({**PART, "name": '"a"'}, {**PART, "name": '"a"'}), "name: two devices are called a"),
        (toml({**PART, "name": '"fpga1"'}, PART), "name: two devices are called fpga1"),
        (
            toml({**PART, "count": "40"}, {**PART, "count": "40"}),
            "device 1: count: a cluster has at most 64 devices",
        ),
        ("[[device]", "Expected"),
        ("a = 1\na = 2", "Cannot overwrite a value"),
        ("a = " + "9" * 5000, "Exceeds the limit"),
        (b"a = '\xff'", "'utf-8' codec can't decode byte 0xff"),
        ("a = " + "[" * 100_000, "values are nested deeper than 64"),
    ],
)
def test_a_file_that_is_no_cluster(refuse, text, said):
    assert refuse(text).startswith(said)


def test_rates_are_exact(load):
    rng = random.Random(1)
    for _ in range(5):
        rates = [rng.randrange(1, 10**11) for _ in range(64)]
        written = [f"{rate // 10**9}.{rate % 10**9:09}" for rate in rates]
        cluster = load(*({**PART, "network_gbps": text} for text in written))
        assert [device.part.network for device in cluster.devices] == rates


def test_any_damage_is_either_harmless_or_refused(write):
    rng, outcomes = random.Random(1), {"cluster": 0, "refused": 0}
    ram = '[{kind = "m20k", blocks = 20}, {kind = "b", blocks = 3, from_bits = 9, shapes = [[64, 8], [8, 64]]}]'
    first = {**PART, "name": '"left"', "count": "2", "ram": ram}
    whole = toml(first, {"part": '"u280"', "clock_mhz": "2.5"}, host='"left1"').encode()
    pieces = b'1 -1 0 "a" [] {} nan 1e999 true " [ = \xff a 2 3 4 5 6 7 8 9 #'.split()
    digits = [at for at, byte in enumerate(whole) if byte in b"0123456789"]
    for _ in range(600):
        damaged = bytearray(whole)
        at = rng.choice(digits) if rng.random() < 0.5 else rng.randrange(len(damaged))
        damaged[at : at + rng.choice([0, 1, 1, 3, 20])] = rng.choice(pieces)
        said = said_of(write(bytes(damaged)))
        assert len(said.splitlines()) <= 1
        outcomes["refused" if said else "cluster"] += 1
    assert min(outcomes.values()) > 60, outcomes
