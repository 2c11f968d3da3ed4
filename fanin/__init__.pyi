from fanin.api.aggregate import aggregate as aggregate
from fanin.api.codec import compress as compress
from fanin.api.codec import decompress as decompress
from fanin.api.emit import components as components
from fanin.api.emit import emit as emit
from fanin.api.emit import emit_p4 as emit_p4
from fanin.errors import CheckFailed as CheckFailed
from fanin.errors import InputError as InputError

__version__: str
LOADED: float
