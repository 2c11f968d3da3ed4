"""Hyper-parameters of the models that RDMA-wild trains, by data set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fanin.sim.learning.workloads import GAMMA


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters: rate α, decay λ, epochs, warm-up epochs with one slot, lr-rff's features and kernel."""

    lr: float
    decay: float
    epochs: int
    warm_up: int
    features: int = 1
    gamma: float = GAMMA


DIGITS = {
    "lr": Recipe(0.25, 1e-4, 60, 5),
    "lr-rff": Recipe(2.0, 1e-4, 50, 5, features=1000),
    "fcnn": Recipe(0.1, 0.0, 60, 40),
}
#: Epochs are the paper's (section 5).
MNIST = {
    "lr": Recipe(0.1, 1e-4, 15, 1),
    "lr-rff": Recipe(5.0, 1e-5, 50, 1, features=2000, gamma=0.02),
    "fcnn": Recipe(0.1, 0.0, 50, 1),
}


def recipes_of(source: Path | None) -> dict[str, Recipe]:
    """Return the recipes by model: MNIST's if its folder is given, otherwise those of scikit-learn's digits."""
    return MNIST if source else DIGITS


def recipe_table(recipes: dict[str, Recipe]) -> Iterator[str]:
    """Yield the hyper-parameters as a Markdown table."""
    yield "| model | rate α | decay λ | epochs | warm-up | features |"
    yield "|---|---|---|---|---|---|"
    for model, recipe in recipes.items():
        features = f"{recipe.features}, gamma {recipe.gamma}" if recipe.features > 1 else ""
        yield f"| {model} | {recipe.lr} | {recipe.decay} | {recipe.epochs} | {recipe.warm_up} | {features} |"
