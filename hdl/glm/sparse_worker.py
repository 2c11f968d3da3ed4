"""Worker for sparse samples: engines with lists of different lengths."""

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.glm.sparse_engine import SparseEngine
from fanin.hdl.glm.sparse_list import Entry
from fanin.hdl.glm.worker import GlmWorker
from fanin.hdl.stream.connect import connect_typed


class SparseWorker(GlmWorker):
    """Worker that trains a slice of the model on the chunks that its engines' lists name.

    Members
    -------
    ``entries`` : In, E × stream of ``Entry``
        Lists of the engines.
    ``samples`` : In, E × stream of ``lanes * banks`` bits
        Words of the lists' entries, in their order.
    ``fault`` : Out, 1
        A list is wrong; see ``ListSequencer``.
    ``labels``, ``pa``, ``fa``, ``shape``, ``training``, ``start``, ``abort``, ``flush``, ``clear``, ``engine``,
    ``host``, ``busy``, ``running``, ``events``, ``counts``
        See ``GlmWorker``.

    Parameters
    ----------
    ``engines``, ``lanes``, ``banks``, ``depth``, ``fifo_depth``, ``frac``, ``loss_lanes``, ``l2``
        See ``GlmWorker``; ``fifo_depth`` counts items.

    Latency
    -------
    As ``GlmWorker`` and ``SparseEngine``; one item a cycle for each engine. Engines are up to 16 micro-batches
    apart.

    Source
    ------
    docs/systems/sparse.md.
    """

    engine_type = SparseEngine

    def __init__(
        self,
        *,
        engines: int = 1,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        frac: int = 24,
        loss_lanes: int | None = None,
        l2: bool = False,
    ):
        super().__init__(
            engines=engines,
            lanes=lanes,
            banks=banks,
            depth=depth,
            fifo_depth=fifo_depth,
            frac=frac,
            loss_lanes=loss_lanes,
            l2=l2,
        )
        self.pipeline += 2  # the queue of scales, and the count of missing final writes

    def _members(self) -> dict[str, Any]:
        lists = In(stream.Signature(Entry)).array(self.engines)
        return super()._members() | {"entries": lists, "fault": Out(1)}

    def _engine(self, m: Module, number: int) -> Any:
        engine = super()._engine(m, number)
        connect_typed(m, flipped(self.entries[number]), engine.entries)
        return engine

    def _connect_scales(self, m: Module, loss: Any, engines: list[Any]) -> None:
        """Give a scale to all engines at once, when each queue has room."""
        all_ready = Cat(engine.scale.ready for engine in engines).all()
        m.d.comb += loss.scale.ready.eq(all_ready)
        for engine in engines:
            m.d.comb += [
                engine.scale.payload.eq(loss.scale.payload),
                engine.scale.valid.eq(loss.scale.valid & all_ready),
            ]
        m.d.comb += self.fault.eq(Cat(engine.fault for engine in engines).any())
