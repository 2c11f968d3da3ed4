"""The picture of the codec's error: strict stays within the bound, published breaks it eightfold at 2^-10."""

import pytest

from fanin.codec.facts import Inceptionn, Mode
from fanin.sim.codec import error as codec_error


@pytest.mark.parametrize(("bound", "worst"), [(10, 2.0**-7), (6, 2.0**-6)])
def test_errors_that_are_drawn(bound, worst):
    _, published = codec_error.largest_errors(Inceptionn(bound, Mode.PUBLISHED))
    assert published.max() == pytest.approx(worst, rel=0.01)
    at, strict = codec_error.largest_errors(Inceptionn(bound))
    assert strict.max() <= 2.0**-bound
    assert (at[0], len(at)) == (2.0**-13, len(strict))


def test_the_picture_is_drawn_in_place_of_a_link(tmp_path):
    path, target = tmp_path / "new" / "error.png", tmp_path / "target"
    path.parent.mkdir()
    path.symlink_to(target)
    codec_error.draw(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not target.exists()
