"""Served programs, and their clients by gRPC alone."""

import contextlib

import pytest

from tests.sim.switch.service.client import METERED, Bidder, Client
from tests.sim.switch.service.served import Served


@pytest.fixture(scope="module")
def shared():
    """A switch for tests that leave nothing behind."""
    with contextlib.closing(Served()) as served, contextlib.closing(Client(served)) as client:
        yield client


@pytest.fixture
def served():
    with contextlib.closing(Served()) as served:
        yield served


@pytest.fixture
def client(served):
    with contextlib.closing(Client(served)) as client:
        yield client


@pytest.fixture
def metered():
    with contextlib.closing(Served(METERED)) as served, contextlib.closing(Client(served)) as client:
        yield client


@pytest.fixture
def bidders(served):
    """Three streams without a bid."""
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(contextlib.closing(Bidder(served.address))) for _ in range(3)]
