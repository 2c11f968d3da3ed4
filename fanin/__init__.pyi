from fanin.api.aggregate import aggregate as aggregate
from fanin.api.cluster import cluster as cluster
from fanin.api.cluster import cluster_build as cluster_build
from fanin.api.codec import compress as compress
from fanin.api.codec import decompress as decompress
from fanin.api.emit import components as components
from fanin.api.emit import emit as emit
from fanin.api.emit import emit_p4 as emit_p4
from fanin.api.param_server import ps_train as ps_train
from fanin.api.plan import plan as plan
from fanin.api.ring import ring_train as ring_train
from fanin.api.train import train as train
from fanin.errors import CheckFailed as CheckFailed
from fanin.errors import InputError as InputError

__version__: str
LOADED: float
