"""What is said of a source."""

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from pipeline.settings import fit_settings
from pipeline.sources.inputs import open_input, size_in_words


@pytest.mark.parametrize(
    ("name", "told", "words"),
    [
        ("table.npy", {}, "1,200 rows x 3 columns"),
        ("table.npy", {"columns": "0,2"}, "1,200 rows x 2 columns"),
        ("table.npy", {"exclude": "1", "id_column": "0"}, "1,200 rows x 1 column"),
        ("images.npy", {}, "30 rows x 8 columns, flattened from 30 x 4 x 2"),
        ("images.npy", {"exclude": "0-4"}, "30 rows x 3 columns, flattened from 30 x 4 x 2"),
        ("square.npy", {"input": "dissimilarities", "method": "mds"}, "5 points"),
        ("edges.npz", {"input": "graph"}, "5 nodes"),
        ("words.txt", {"input": "objects", "method": "mds", "metric": "math:dist"}, "3 texts"),
        ("table.npy", {"input": "objects", "method": "mds", "metric": "math:dist"}, "1,200 rows x 3 columns"),
    ],
)
def test_the_size_of_any_input_is_told(tmp_path, name, told, words):
    np.save(tmp_path / "table.npy", np.arange(3600).reshape(1200, 3))
    np.save(tmp_path / "images.npy", np.ones((30, 4, 2)))
    np.save(tmp_path / "square.npy", np.ones((5, 5)) - np.eye(5))
    save_npz(tmp_path / "edges.npz", csr_array(np.ones((5, 5)) - np.eye(5)))
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    source = open_input(fit_settings({"source": str(tmp_path / name), "store": str(tmp_path / "run"), **told}))
    assert size_in_words(source) == words
