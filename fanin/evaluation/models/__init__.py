"""Models of the papers' machines, which fanin does not build.

Their inputs are quoted, or fitted to numbers of the papers: :mod:`fanin.evaluation.origins.inputs`.
"""
