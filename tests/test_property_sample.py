"""The Makefile and the sample of property tests name the same markers."""

import re
from pathlib import Path

from testbed.examples import NOT_QUICK


def test_make_test_leaves_out_these_markers() -> None:
    """A property test that `make test` leaves out is never left out of the thorough run."""
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    (expression,) = re.findall(r"^LEFT_OUT := (.*)$", makefile, re.MULTILINE)
    assert tuple(expression.split(" or ")) == NOT_QUICK
