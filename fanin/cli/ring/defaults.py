"""What ``fanin ring train`` takes for options that are not given."""

#: What an option is that is not given; with ``--resume``, of what belongs to the model, what the folder says.
DEFAULTS = {
    "data": "digits",
    "nodes": 4,
    "epochs": 10,
    "batch": 32,
    "rate": 0.1,
    "momentum": 0.9,
    "decay": 0.0,
    "seed": 0,
    "lanes": 8,
    "codec": "none",
}
