"""``job.json``: the program that a switch runs, its addresses and ports, and its jobs."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fanin.errors import InputError
from fanin.job import SWITCH, Job, Member, check_jobs, worker_endpoint
from fanin.p4.aggregation import MAX_JOBS, ProgramConfig, Target
from fanin.p4.installation import check_job
from fanin.wire.aggregation import Encap, Protocol
from fanin.wire.ethernet import UDP_PORT, Endpoint

T = TypeVar("T")
MAX_PORT = 510  # 511 is BMv2's drop port
SPEEDS = ("10G", "25G", "40G", "50G", "100G", "200G", "400G")
FECS = ("NONE", "FC", "RS")


@dataclass(frozen=True)
class Port:
    """A port of the switch; speed and forward error correction are Tofino's."""

    number: int
    speed: str = "100G"
    fec: str = "RS"


@dataclass(frozen=True)
class Deployment:
    """What a switch runs; ``program`` where it is known. Raises ValueError for jobs that cannot share it."""

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
            for member in job.members:
                if member.port not in numbers:
                    raise ValueError(f"port {member.port} of job {job.id} is not among the switch's: {numbers}")
            if self.program:
                check_job(self.program, job)


def default_deployment(config: ProgramConfig) -> Deployment:
    """Job 1 with all slots, worker i at port i."""
    members = tuple(Member(w, 1 << w, worker_endpoint(w)) for w in range(config.workers))
    ports = tuple(Port(member.port) for member in members)
    return Deployment(SWITCH, ports, (Job(1, 0, config.slots, members),), config)


def deployment_json(deployment: Deployment) -> str:
    """The file's text."""
    jobs = [
        {
            "id": job.id,
            "base": job.base,
            "slots": job.slots,
            "members": [
                {"port": member.port, "bitmap": member.bitmap, **_endpoint_json(member.endpoint)}
                for member in job.members
            ],
        }
        for job in deployment.jobs
    ]
    ports = [{"port": port.number, "speed": port.speed, "fec": port.fec} for port in deployment.ports]
    document = {"switch": _endpoint_json(deployment.switch), "ports": ports, "jobs": jobs}
    if deployment.program:
        document = {"program": vars(deployment.program), **document}
    text = json.dumps(document, indent=2)
    # A member or a port in a line of its own, and not in six.
    return re.sub(r"\{\s+(\"port\":[^{}]*?)\s+\}", lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}", text) + "\n"


def _endpoint_json(endpoint: Endpoint) -> dict[str, Any]:
    mac = endpoint.mac.to_bytes(6, "big").hex(":")
    return {"mac": mac, "ip": str(ipaddress.IPv4Address(endpoint.ip)), "udp_port": endpoint.port}


def load_deployment(path: Path) -> Deployment:
    """Read the file. Raises InputError that names the file, the place in it and the cause."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    reader = _Reader(path, "the file", document)
    deployment = reader.built(
        lambda: Deployment(
            reader.inside("switch").endpoint(),
            tuple(item.port() for item in reader.items("ports")),
            tuple(item.job() for item in reader.items("jobs")),
            reader.program(),
        )
    )
    reader.finish()
    return deployment


class _Reader:
    """An object of the file; what is wrong is reported with the object's place."""

    def __init__(self, path: Path, place: str, value: Any):
        self._path, self._place = path, place
        if not isinstance(value, dict):
            raise self._wrong(f"must be an object, not {json.dumps(value)[:40]}")
        self._left: dict[str, Any] = dict(value)
        self._inner: list[_Reader] = []

    def _wrong(self, cause: str) -> InputError:
        return InputError(f"{self._path}: {self._place}: {cause}")

    def built(self, build: Callable[[], T]) -> T:
        """What ``build`` returns; its ValueError is about this object."""
        try:
            return build()
        except ValueError as error:
            raise self._wrong(str(error)) from error

    def finish(self) -> None:
        """Refuse what nobody asked for: it may be a misspelt name."""
        for inner in self._inner:
            inner.finish()
        if self._left:
            raise self._wrong(f"{', '.join(map(json.dumps, self._left))} is not known here")

    def _take(self, name: str, kind: type[T], default: T | None = None) -> T:
        value = self._left.pop(name, default)
        if value is None:
            raise self._wrong(f'"{name}" is missing')
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._wrong(f'"{name}" must be {_KINDS[kind]}, not {json.dumps(value)[:40]}')
        return value

    def _number(self, name: str, most: int, default: int | None = None) -> int:
        value = self._take(name, int, default)
        if not 0 <= value <= most:
            raise self._wrong(f'"{name}" must be in 0…{most}, not {value}')
        return value

    def _choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self._take(name, str, default)
        if value not in choices:
            raise self._wrong(f'"{name}" must be one of {", ".join(choices)}, not {json.dumps(value)}')
        return value

    def _child(self, place: str, value: Any) -> _Reader:
        self._inner.append(_Reader(self._path, place, value))
        return self._inner[-1]

    def inside(self, name: str) -> _Reader:
        """The object called ``name``."""
        return self._child(name, self._take(name, dict))

    def items(self, name: str) -> list[_Reader]:
        """The objects of the list called ``name``."""
        outer = "" if self._place == "the file" else f"{self._place}."
        return [self._child(f"{outer}{name}[{n}]", v) for n, v in enumerate(self._take(name, list))]

    def endpoint(self) -> Endpoint:
        """Addresses."""
        mac, ip = self._take("mac", str), self._take("ip", str, "0.0.0.0")
        if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", mac):
            raise self._wrong(f'"mac" must be like 02:00:00:00:00:01, not {json.dumps(mac)}')
        address = self.built(lambda: int(ipaddress.IPv4Address(ip)))
        return Endpoint(int(mac.replace(":", ""), 16), address, self._number("udp_port", 0xFFFF, UDP_PORT))

    def program(self) -> ProgramConfig | None:
        """What ``fanin p4 emit`` said of the program that it wrote."""
        if "program" not in self._left:
            return None
        inside = self.inside("program")
        return inside.built(
            lambda: ProgramConfig(
                target=Target(inside._choice("target", tuple(Target))),
                protocol=Protocol(inside._choice("protocol", tuple(Protocol))),
                workers=inside._take("workers", int),
                slots=inside._take("slots", int),
                values=inside._take("values", int),
                encap=Encap(inside._choice("encap", tuple(Encap))),
            )
        )

    def port(self) -> Port:
        """A port of the switch."""
        speed, fec = self._choice("speed", SPEEDS, "100G"), self._choice("fec", FECS, "RS")
        return Port(self._number("port", MAX_PORT), speed, fec)

    def job(self) -> Job:
        """A job."""
        members = [
            Member(item._number("port", MAX_PORT), item._take("bitmap", int), item.endpoint())
            for item in self.items("members")
        ]
        places = [(member.port, member.bitmap) for member in members]
        for place in places:
            if places.count(place) > 1:
                raise self._wrong(f"two members with port {place[0]} and bitmap {place[1]}")
        number, base, slots = (self._take(name, int) for name in ("id", "base", "slots"))
        return self.built(lambda: Job(number, base, slots, tuple(members)))


_KINDS: Mapping[type, str] = {int: "an integer", str: "a string", list: "a list", dict: "an object"}
