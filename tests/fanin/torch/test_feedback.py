"""Error feedback under DistributedDataParallel: nothing is lost, whatever its buckets; checkpoints."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from fanin.torch.feedback import ErrorFeedback
from fanin.torch.hooks import nics, top_k
from tests.fanin.torch.ranks import Bucket


@pytest.fixture
def alone(monkeypatch):
    """A group of this process alone."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


def _model():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(40, 40) for _ in range(4)]
    return torch.nn.Sequential(*layers)


def _buckets(model, seen):
    """DDP whose buckets hold about one layer, so that it rearranges them; shapes go to ``seen``."""
    state, hook = ErrorFeedback(model), top_k(0.05)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.004)

    def record(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen[-1].append([tuple(parameter.shape) for parameter in bucket.parameters()])
        return hook(state, bucket)

    wrapped.register_comm_hook(state, record)
    return wrapped, state


def _step(wrapped, step):
    """The gradients of a step as they are computed, and as they arrive; parameters stay."""
    inputs = torch.randn(8, 40, generator=torch.Generator().manual_seed(step))
    module = wrapped.module
    own = torch.autograd.grad(module(inputs).square().mean(), list(module.parameters()))
    wrapped.zero_grad()
    wrapped(inputs).square().mean().backward()
    return own, [parameter.grad.clone() for parameter in module.parameters()]


def test_what_arrives_and_what_is_left_are_all_gradients_whatever_the_buckets(alone):
    model, seen = _model(), []
    wrapped, state = _buckets(model, seen)
    own_sum = [torch.zeros_like(parameter) for parameter in model.parameters()]
    sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for step in range(5):
        seen.append([])
        own, arrived = _step(wrapped, step)
        for total, more in zip([*own_sum, *sums], [*own, *arrived], strict=True):
            total += more
    assert len(seen[1]) > 1
    assert seen[0] != seen[1]  # DDP has put parameters into other buckets
    left = state.state_dict()
    for (name, _), whole, total in zip(model.named_parameters(), own_sum, sums, strict=True):
        assert torch.allclose(total.reshape(-1) + left[name], whole.reshape(-1), atol=1e-6)
        assert left[name].abs().max() > 1e-3


def test_a_training_goes_on_from_a_checkpoint_with_the_same_bits(alone, tmp_path):
    wrapped, state = _buckets(_model(), [[]])
    for step in range(3):
        _step(wrapped, step)
    torch.save(state.state_dict(), tmp_path / "state.pt")
    _, expected = _step(wrapped, 3)
    resumed, state = _buckets(_model(), [[]])
    _step(resumed, 9)  # its buckets are those of later steps
    state.load_state_dict(torch.load(tmp_path / "state.pt"))
    _, arrived = _step(resumed, 3)
    assert all(torch.equal(one, other) for one, other in zip(arrived, expected, strict=True))
    changed = state.state_dict()
    next(iter(changed.values())).fill_(7)
    assert not any((residual == 7).all() for residual in state.state_dict().values())  # no memory is shared


def test_small_values_arrive_with_error_feedback_alone(alone):
    model = torch.nn.Linear(2, 1, bias=False)
    gradient = torch.tensor([1.0, 0.4])
    for state, expected in ((None, [4.0, 0.0]), (ErrorFeedback(model), [4.0, 1.2])):
        bucket = Bucket(gradient, model.parameters())
        total = sum(top_k(0.5)(state, bucket).wait() for _ in range(4))
        assert total.tolist() == pytest.approx(expected)


def test_values_that_are_not_finite_leave_nothing():
    model = torch.nn.Linear(3, 1, bias=False)
    state, bucket = ErrorFeedback(model), Bucket(torch.zeros(3), model.parameters())
    state.keep(bucket, torch.tensor([np.nan, np.inf, 0.5]))
    assert state.corrected(bucket).tolist() == [0.0, 0.0, 0.5]


def test_what_is_refused(alone):
    model, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    state = ErrorFeedback(model)
    with pytest.raises(ValueError, match="the state is the error feedback of another model"):
        top_k()(state, Bucket(torch.zeros(4), other.parameters()))
    with pytest.raises(ValueError, match="heads is not a parameter of the model"):
        state.load_state_dict({"heads": torch.zeros(3)})
    with pytest.raises(ValueError, match="weight has 3 values, its residual 4"):
        state.load_state_dict({"weight": torch.zeros(4)})
    with pytest.raises(ValueError, match=r"nics\(\) needs a process group of the backend 'fanin'"):
        nics()(None, Bucket(torch.zeros(4)))
