"""NADA's layers: what each computes, the parallelism it can be built with, and what that costs."""
