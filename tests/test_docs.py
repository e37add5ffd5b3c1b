"""What README shows runs and gives what it says."""

import re
from pathlib import Path

import numpy as np

from pipeline.datasets import swiss_roll

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_blocks_of_the_readme_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    points = swiss_roll(1200, seed=0).points
    names = {"X": points[:1000], "new_points": points[1000:]}
    for block in blocks:
        exec(block, names)
    assert names["placed"].shape == (200, 2)
    np.testing.assert_allclose(names["project"](names["model"], [names["outlier"]]), [[0, 0]], atol=1e-10)
    answer = names["restricted_reconstruction"](names["model"], [names["outlier"]])
    np.testing.assert_allclose(np.abs(answer.coordinates), [[0, 19.18]], atol=5e-3)
    assert answer.ambiguous.all()
