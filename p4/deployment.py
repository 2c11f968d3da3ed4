"""``job.json``: a switch's program, addresses, ports and jobs."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.records import Record, open_record
from fanin.job import SWITCH, Job, Member, Station, Uplink, check_jobs, default_member
from fanin.p4.aggregation import MAX_JOBS, ProgramConfig, Target
from fanin.p4.installation import check_job
from fanin.wire.aggregation import Encap, Protocol
from fanin.wire.ethernet import UDP, UDP_PORT, Endpoint
from fanin.wire.fields import field_bits

MAX_PORT = 510  # 511 is BMv2's drop port
SPEEDS = ("10G", "25G", "40G", "50G", "100G", "200G", "400G")
FECS = ("NONE", "FC", "RS")


@dataclass(frozen=True)
class Port:
    """A port of the switch; speed and forward error correction are used on Tofino only."""

    number: int
    speed: str = "100G"
    fec: str = "RS"


@dataclass(frozen=True)
class Deployment:
    """Configuration of a switch: its addresses, ports, jobs, and program if known.

    Raises ValueError for jobs that cannot share the switch.
    """

    switch: Endpoint
    ports: tuple[Port, ...]
    jobs: tuple[Job, ...]
    program: ProgramConfig | None = None

    def __post_init__(self) -> None:
        numbers = [port.number for port in self.ports]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"ports must be named once each, not {numbers}")
        check_jobs(self.jobs)
        if len(self.jobs) > MAX_JOBS:
            raise ValueError(f"the program runs {MAX_JOBS} jobs at a time, not {len(self.jobs)}")
        for job in self.jobs:
            for station in job.stations:
                if station.port not in numbers:
                    raise ValueError(
                        f"port {station.port} of job {job.id} is not among the switch's: {numbers}"
                    )
            if self.program:
                check_job(self.program, job)


def default_deployment(config: ProgramConfig, jobs: int = 1) -> Deployment:
    """Return jobs 1 to ``jobs``, each with all workers (worker i at port i) and the same number of slots.

    Raises ValueError for more jobs than the program runs, or than there are slots.
    """
    members = tuple(map(default_member, range(config.workers)))
    ports = tuple(Port(member.port) for member in members)
    if not 1 <= jobs <= min(MAX_JOBS, config.slots):
        raise ValueError(f"jobs must be in 1…{min(MAX_JOBS, config.slots)}, not {jobs!r}")
    slots_per_job = config.slots >> (jobs - 1).bit_length()
    return Deployment(
        SWITCH, ports, tuple(Job(1 + n, n * slots_per_job, slots_per_job, members) for n in range(jobs)), config
    )


def deployment_json(deployment: Deployment) -> str:
    """Return the text of ``job.json``."""
    jobs = [
        {
            "id": job.id,
            "base": job.base,
            "slots": job.slots,
            "members": [_station_json(member) for member in job.members],
            **({"uplink": _station_json(job.uplink)} if job.uplink else {}),
        }
        for job in deployment.jobs
    ]
    ports = [{"port": port.number, "speed": port.speed, "fec": port.fec} for port in deployment.ports]
    document = {"switch": _endpoint_json(deployment.switch), "ports": ports, "jobs": jobs}
    if deployment.program:
        document = {"program": vars(deployment.program), **document}
    text = json.dumps(document, indent=2)
    # Put each member and port on a single line.
    return re.sub(r"\{\s+(\"port\":[^{}]*?)\s+\}", lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}", text) + "\n"


def _station_json(station: Station) -> dict[str, Any]:
    return {"port": station.port, "bitmap": station.bitmap, **_endpoint_json(station.endpoint)}


def _endpoint_json(endpoint: Endpoint) -> dict[str, Any]:
    mac = endpoint.mac.to_bytes(6, "big").hex(":")
    return {"mac": mac, "ip": str(ipaddress.IPv4Address(endpoint.ip)), "udp_port": endpoint.port}


def load_deployment(path: Path) -> Deployment:
    """Read ``job.json``. Raises InputError that names the file, the place in it and the cause."""
    record = open_record(path)
    deployment = record.build(
        lambda: Deployment(
            read_endpoint(record.record("switch")),
            tuple(map(_port, record.records("ports"))),
            tuple(map(_job, record.records("jobs"))),
            _program(record.record("program")) if "program" in record.value else None,
        )
    )
    record.finish()
    return deployment


def read_endpoint(record: Record) -> Endpoint:
    """Read ``mac``, and ``ip`` and ``udp_port`` if they are given. Raises InputError."""
    mac, ip = record.text("mac"), record.text("ip", default="0.0.0.0")
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", mac):
        raise record.error(f'"mac" must be like 02:00:00:00:00:01, not {json.dumps(mac)}')
    if int(mac[:2], 16) & 1:
        raise record.error(f'"mac" must be of a single station, not of a group: {mac}')
    address = record.build(lambda: int(ipaddress.IPv4Address(ip)))
    port = record.integer("udp_port", high=1 << field_bits(UDP, "destination_port"), default=UDP_PORT)
    return Endpoint(int(mac.replace(":", ""), 16), address, port)


def _program(record: Record) -> ProgramConfig:
    """Read the program's configuration, as written by ``fanin p4 emit``."""
    return record.build(
        lambda: ProgramConfig(
            target=Target(record.text("target", tuple(Target))),
            protocol=Protocol(record.text("protocol", tuple(Protocol))),
            workers=record.integer("workers"),
            slots=record.integer("slots"),
            values=record.integer("values"),
            encap=Encap(record.text("encap", tuple(Encap))),
        )
    )


def read_port(record: Record, name: str = "port") -> int:
    """Read the number of a port. Raises InputError."""
    return record.integer(name, high=MAX_PORT + 1)


def _port(record: Record) -> Port:
    return Port(
        read_port(record),
        record.text("speed", SPEEDS, default=Port.speed),
        record.text("fec", FECS, default=Port.fec),
    )


def _job(record: Record) -> Job:
    members = [
        Member(read_port(member), member.integer("bitmap"), read_endpoint(member))
        for member in record.records("members")
    ]
    identities = [(member.port, member.bitmap) for member in members]
    for identity in identities:
        if identities.count(identity) > 1:
            raise record.error(f"two members with port {identity[0]} and bitmap {identity[1]}")
    number, base, slots = (record.integer(name) for name in ("id", "base", "slots"))
    uplink = None
    if "uplink" in record.value:
        link = record.record("uplink")
        uplink = Uplink(read_port(link), link.integer("bitmap"), read_endpoint(link))
    return record.build(lambda: Job(number, base, slots, tuple(members), uplink))
