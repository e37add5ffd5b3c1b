"""What is run: every method with every input and extension that it takes, and every other setting at least once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

Told = Mapping[str, object]
Methods = Mapping[str, Any]

BASE: Told = {"n_landmarks": 40, "n_neighbors": 8, "seed": 3}
BRIDGED: Told = {"component_policy": "bridge"}
FUNCTIONS = "benchmarks.same_bytes.functions"
TWO_ANSWERS = ("projection", "restricted")
OF_DISTANCES = ("kernel-mapping", "rbf")
SELECTIONS = ("maxmin", "random", "kmeans", "trace", "cholesky")
INVERSE_KERNELS = ("cubic", "power-1", "power-5", "power-7", "thin-plate", "thin-plate-4", "thin-plate-6", "shepard")
ANCHORS = 100


@dataclass(frozen=True)
class Files:
    """Names in the folder of data: what is fitted, new rows, no rows, and rows for a refit. Of proximities there is no
    batch without rows."""

    source: str
    new: str
    empty: str = ""
    more: str = ""


@dataclass(frozen=True)
class Case:
    """Jobs that are run one after the other on one store. `batch` is what extensions are told beside their source."""

    name: str
    files: Files
    told: Told
    jobs: tuple[str, ...]
    batch: Told = field(default_factory=dict)
    anchors: int | None = None


ROLL = Files("roll.npy", "new.npy", "empty.npy", "more.npy")
REPEATED = replace(ROLL, source="repeated.npy")
WIDE = Files("wide.npy", "wide_new.npy", "wide_empty.npy", "wide_more.npy")
APART = Files("apart.npy", "apart_new.npy")
AFFINE = Files("affine.npy", "affine_new.npy")
GRAM = Files("gram.npz", "gram_new.npz")
TEXTS = Files("texts.npy", "texts_new.npy", "texts_empty.npy")
GRAPH = Files("graph.npz", "graph_new.npz", "graph_empty.npz")


def run_cases(methods: Methods) -> list[Case]:
    """All that are runs on disk."""
    parts = (_products, _joined, _of_rows, _of_methods, _of_other_inputs, _of_landmarks, _of_objects, _of_sources)
    return [case for part in (*parts, _in_partitions) for case in part(methods)]


def estimator_cases(methods: Methods) -> dict[str, tuple[str, Told]]:
    """Data ("roll", "apart" or "graph") and parameters of the estimators in memory, by name."""
    base = {"n_landmarks": 40, "n_neighbors": 8, "random_state": 3}
    cases: dict[str, tuple[str, Told]] = {}
    for name, method in methods.items():
        for extension in method.extensions:
            told = {**base, "method": name, "extension": extension}
            cases[f"estimator {name} {extension}"] = "roll", told
            for given, data in (("dissimilarities", "apart"), ("graph", "graph")):
                if given in method.inputs:
                    cases[f"estimator {name} {extension} {given}"] = data, {**told, "metric": "precomputed"}
    for selection in SELECTIONS:
        cases[f"estimator selection {selection}"] = "roll", {**base, "landmark_selection": selection}
    cases["estimator radius"] = "roll", {**base, "radius": 5.0}
    cases["estimator balanced"] = "roll", {**base, "extension": "restricted", "diagonal_weight": "balanced"}
    cases["estimator clusters"] = "roll", {**base, "method": "spectral", "n_clusters": 3}
    return cases


def study_cases(methods: Methods) -> dict[str, tuple[str, Told]]:
    """Source and settings of studies, by name."""
    base = {"seed": 3, "repeats": 2, "landmarks": "15,40", "component_policy": "bridge", "n_neighbors": 8}
    few = {**base, "selections": "maxmin,random"}
    cases: dict[str, tuple[str, Told]] = {f"study {name}": ("roll.npy", {**few, "method": name}) for name in methods}
    cases["study selections and neighbors"] = "roll.npy", {**base, "neighbors": "6,12"}
    cases["study dissimilarities"] = "apart.npy", {**few, "method": "mds", "input": "dissimilarities"}
    cases["study preprocessing"] = "roll8.npy", {**few, "method": "mds", "standardize": True, "pca": 3}
    return cases


def _case(methods: Methods, name: str, files: Files, told: Told, **more: Any) -> Case:
    """A case with every job that its settings allow."""
    told = {**BASE, **told}
    return Case(name, files, told, _jobs(methods, told, files), anchors=_anchors(methods, told), **more)


def _jobs(methods: Methods, told: Told, files: Files) -> tuple[str, ...]:
    method = methods[str(told.get("method", "isomap"))]
    on_vectors = told.get("input", "vectors") == "vectors"
    even = told.get("input") != "graph" and "radius" not in told
    two = _has_two_answers(method, told)
    jobs = ["plan", "fit", "extend", *(["empty"] * bool(files.empty))]
    if two and (even or not method.geodesic):
        jobs += ["together", "bound"] if on_vectors else ["together"]
    if _is_portable(methods, told):
        jobs += ["model", "model extend"]
    if on_vectors:
        jobs += ["midpoints"]
        if str(told.get("extension", "auto")) in ("auto", method.extensions[0]):
            jobs += ["left out", "path"]
        if files.more:
            jobs += ["refit", "version 1", "refit extend"]
            jobs += ["refit model", "refit model extend"] * _is_portable(methods, told)
    return tuple(jobs)


def _has_two_answers(method: Any, told: Told) -> bool:
    extension = told.get("extension", "auto")
    chosen = method.extensions[0] if extension == "auto" else extension
    return "restricted" in method.extensions and chosen in TWO_ANSWERS


def _is_portable(methods: Methods, told: Told) -> bool:
    """Whether a model can be exported: of a graph only with projections and lists of the same length."""
    method = methods[str(told.get("method", "isomap"))]
    if not method.geodesic:
        return True
    return _has_two_answers(method, told) and told.get("input") != "graph" and "radius" not in told


def _anchors(methods: Methods, told: Told) -> int | None:
    return ANCHORS if methods[str(told.get("method", "isomap"))].geodesic else None


def _products(methods: Methods) -> Iterator[Case]:
    for name, method in methods.items():
        for given in method.inputs:
            for extension in method.extensions:
                if given != "similarities" or extension not in OF_DISTANCES:
                    files, told, batch = _input(name, given)
                    told = {"method": name, "extension": extension, **told}
                    yield _case(methods, f"{name} {given} {extension}", files, told, batch=batch)


def _input(method: str, given: str) -> tuple[Files, Told, Told]:
    """The files of an input, and what a fit and an extension are told of them."""
    if given == "vectors":
        return ROLL, BRIDGED, {}
    told: Told = {"input": given}
    if given == "dissimilarities":
        return APART, told, {}
    if given == "graph":
        return GRAPH, told, {}
    if given == "objects":
        name, function = ("kernel", "shared_letters") if method == "kernel-mds" else ("metric", "levenshtein")
        return TEXTS, {**told, name: f"{FUNCTIONS}:{function}", "n_landmarks": 20}, {}
    if method in ("laplacian", "spectral"):
        return AFFINE, told, {}
    return GRAM, {**told, "key": "S", "own_key": "own"}, {}


def _joined(methods: Methods) -> Iterator[Case]:
    """How points are joined, and what becomes of a graph in pieces."""
    pieces = replace(ROLL, source="pieces.npy", new="new_pieces.npy")
    for method in ("isomap", "kernel-isomap"):
        yield _case(methods, f"{method} radius", ROLL, {**BRIDGED, "method": method, "radius": 5.0})
        for policy in ("bridge", "largest"):
            yield _case(methods, f"{method} pieces {policy}", pieces, {"method": method, "component_policy": policy})
    yield _case(methods, "isomap radius largest", pieces, {"radius": 5.0, "component_policy": "largest"})
    yield _case(methods, "isomap radius repeated rows", REPEATED, {**BRIDGED, "radius": 6.0})
    yield _case(methods, "isomap exact search", ROLL, {**BRIDGED, "recall": 1.0})
    automatic = _case(methods, "isomap automatic landmarks", ROLL, {**BRIDGED, "n_landmarks": "auto"})
    yield replace(automatic, anchors=170)
    yield replace(_case(methods, "isomap all anchors", ROLL, BRIDGED), anchors=None)


def _of_rows(methods: Methods) -> Iterator[Case]:
    """What the rows are, and what is done to them first."""
    holes = replace(ROLL, source="holes.npy", new="new_holes.npy")
    for method in ("isomap", "mds", "spectral"):
        told: Told = {**BRIDGED, "method": method}
        yield _case(methods, f"{method} missing", holes, {**told, "missing": "drop"}, batch={"missing": "drop"})
        yield _case(methods, f"{method} repeated rows", REPEATED, told)
    eight = Files("roll8.npy", "new8.npy", more="more8.npy")
    for method in ("isomap", "mds"):
        yield _case(methods, f"{method} standardize", eight, {**BRIDGED, "method": method, "standardize": True})
        yield _case(methods, f"{method} pca", eight, {**BRIDGED, "method": method, "pca": 3})
    yield _case(methods, "lle standardize pca", eight, {"method": "lle", "standardize": True, "pca": 4})


def _of_methods(methods: Methods) -> Iterator[Case]:
    """Settings of methods, landmarks and answers, all on the same points."""
    for name, told in {**_measures(), **_answers(), **_numbers()}.items():
        yield _case(methods, name, ROLL, {**BRIDGED, **told})
    clusters = replace(ROLL, source="clusters.npy")
    yield _case(methods, "spectral clusters", clusters, {"method": "spectral", "n_clusters": 3})
    back = _case(methods, "inverse kernels", ROLL, {"method": "mds"})
    yield replace(back, jobs=("fit", *(f"inverse {kernel}" for kernel in INVERSE_KERNELS)))


def _measures() -> dict[str, Told]:
    """Metrics and kernels."""
    measures = [("mds", metric) for metric in ("cityblock", "chebyshev", "cosine", "correlation")]
    measures += [("lle", "cosine"), ("metric-mds", "cityblock"), ("laplacian", "chebyshev")]
    kernels: dict[str, Told] = {"linear": {}, "cosine": {}, "rbf": {"gamma": 0.01}}
    kernels["polynomial"] = {"degree": 2, "constant": 0.5, "gamma": 0.1}
    by_metric: dict[str, Told] = {f"{name} {metric}": {"method": name, "metric": metric} for name, metric in measures}
    by_kernel = {
        f"kernel-mds {name}": {"method": "kernel-mds", "kernel": name, **more} for name, more in kernels.items()
    }
    return {**by_metric, **by_kernel}


def _answers() -> dict[str, Told]:
    """Ways to choose landmarks, and weights of a point's length."""
    told: dict[str, Told] = {}
    for method, selection in product(("isomap", "mds"), SELECTIONS):
        told[f"{method} selection {selection}"] = {"method": method, "landmark_selection": selection}
    for method, extension, weight in product(("isomap", "mds"), TWO_ANSWERS, ("balanced", 5.0)):
        weighed = {"method": method, "extension": extension, "diagonal_weight": weight}
        told[f"{method} {extension} weight {weight}"] = weighed
    return told


def _numbers() -> dict[str, Told]:
    """Numbers that a method is told."""
    return {
        "laplacian gamma": {"method": "laplacian", "gamma": 0.02},
        "spectral gamma": {"method": "spectral", "gamma": 0.02, "n_clusters": 4},
        "lle regularization": {"method": "lle", "regularization": 0.02},
        "sammon stress neighbors": {"method": "sammon", "stress_neighbors": 10},
        "nonmetric-mds starts": {"method": "nonmetric-mds", "n_init": 2, "seed": 3},
        "isomap one component": {"n_components": 1},
        "mds three components": {"method": "mds", "n_components": 3},
        "isomap neighbors and seed": {"n_neighbors": 10, "seed": 11},
    }


def _of_other_inputs(methods: Methods) -> Iterator[Case]:
    """Ways to choose landmarks where there are no vectors, and a graph in pieces."""
    for selection in SELECTIONS:
        told = {"method": "mds", "input": "dissimilarities", "landmark_selection": selection}
        yield _case(methods, f"dissimilarities selection {selection}", APART, told)
    for selection in ("maxmin", "random"):
        told = {"input": "graph", "landmark_selection": selection}
        yield _case(methods, f"graph selection {selection}", GRAPH, told)
    pieces = Files("graph_pieces.npz", "graph_pieces_new.npz", "graph_pieces_empty.npz")
    told = {"input": "graph", "component_policy": "largest"}
    yield _case(methods, "graph largest", pieces, told, batch={"missing": "drop"})


def _of_landmarks(methods: Methods) -> Iterator[Case]:
    """Proximities of landmarks that are given, and similarities of points to themselves."""
    marks: Told = {"n_landmarks": "auto", "landmarks_key": "which"}
    apart = Files("apart_marks.npz", "apart_marks_new.npy")
    for method in ("mds", "lle", "sammon"):
        told = {**marks, "method": method, "input": "dissimilarities", "key": "D"}
        yield _case(methods, f"{method} given landmarks", apart, told)
    similar: Told = {"input": "similarities", "key": "S"}
    gram, affine = Files("gram_marks.npz", "gram_marks_new.npz"), Files("affine_marks.npz", "affine_marks_new.npy")
    own = {**marks, **similar, "method": "mds", "own_key": "own"}
    yield _case(methods, "similarities given landmarks", gram, own)
    yield _case(methods, "affinities given landmarks", affine, {**marks, **similar, "method": "laplacian"})
    yield _case(methods, "similarities own key told", GRAM, {**similar, "method": "mds"}, batch={"own_key": "own"})


def _of_objects(methods: Methods) -> Iterator[Case]:
    numbers = Files("clusters.npy", "new.npy", "empty.npy")
    objects: Told = {"input": "objects", "n_landmarks": 20}
    for method in ("mds", "lle", "metric-mds", "laplacian"):
        for name, files, function in (("texts", TEXTS, "levenshtein"), ("numbers", numbers, "apart")):
            told = {**objects, "method": method, "metric": f"{FUNCTIONS}:{function}", "n_evaluated": 9}
            yield _case(methods, f"{method} {name} estimated", files, told)
    yield _case(methods, "mds numbers", numbers, {**objects, "method": "mds", "metric": f"{FUNCTIONS}:apart"})


def _of_sources(methods: Methods) -> Iterator[Case]:
    """Kinds of files, names of rows, arrays in memory, batches in a folder."""
    csv = Files("roll.csv", "new.csv", more="more.csv")
    parquet = Files("roll.parquet", "new.parquet", more="more.parquet")
    sources: dict[str, tuple[Files, Told]] = {
        "csv columns ids": (csv, {"columns": "x,y,z", "id_column": "number"}),
        "parquet text ids": (parquet, {"columns": "x,z,y", "id_column": "text", "method": "mds"}),
        "npz key ids": (Files("roll.npz", "new.npy"), {"key": "X", "id_column": "names"}),
        "zarr": (Files("roll.zarr", "new.npy", more="more.npy"), {}),
        "float32": (Files("roll32.npy", "new32.npy"), {}),
        "float32 mds": (Files("roll32.npy", "new32.npy", more="more.npy"), {"method": "mds"}),
    }
    for name, (files, more) in sources.items():
        yield _case(methods, name, files, {**BRIDGED, **more})
    jobs = ("fit in memory", "extend", "midpoints in memory")
    for method in ("isomap", "mds"):
        in_memory = _case(methods, f"{method} in memory", ROLL, {**BRIDGED, "method": method})
        yield replace(in_memory, jobs=jobs)
        incoming = _case(methods, f"{method} incoming", ROLL, {**BRIDGED, "method": method})
        yield replace(incoming, jobs=("fit", "incoming", "refit incoming"))


def _in_partitions(methods: Methods) -> Iterator[Case]:
    """Runs that are cut into several pieces of work."""
    told: Told = {**BRIDGED, "partition_mib": 1}
    batch: Told = {"partition_mib": 1}
    jobs = ("plan", "fit", "extend", "together", "model", "model extend", "left out", "refit")
    for method in ("isomap", "mds"):
        wide = _case(methods, f"{method} in partitions", WIDE, {**told, "method": method, "pca": 20}, batch=batch)
        yield replace(wide, jobs=jobs)
    few = ("plan", "fit", "extend")
    yield replace(_case(methods, "isomap in one piece", WIDE, {**BRIDGED, "partition_mib": 64, "pca": 20}), jobs=few)
    yield replace(_case(methods, "isomap many columns", WIDE, told, batch=batch), jobs=few)
    yield replace(_case(methods, "isomap radius in partitions", WIDE, {**told, "radius": 2.0}, batch=batch), jobs=few)
    for method in ("kernel-isomap", "lle", "spectral", "metric-mds"):
        wide = _case(methods, f"{method} in partitions", WIDE, {**told, "method": method}, batch=batch)
        yield replace(wide, jobs=few)
    graph = Files("many_nodes.npz", "many_nodes_new.npz", "many_nodes_empty.npz")
    yield _case(methods, "graph in partitions", graph, {"input": "graph", "partition_mib": 1}, batch=batch)
    given = Files("apart_many.npz", "apart_many_new.npy")
    marks = {"method": "mds", "input": "dissimilarities", "key": "D", "landmarks_key": "which", "n_landmarks": "auto"}
    yield _case(methods, "dissimilarities in partitions", given, {**marks, "partition_mib": 1}, batch=batch)
    numbers = Files("numbers.npy", "new.npy", "empty.npy")
    objects = {"method": "mds", "input": "objects", "metric": f"{FUNCTIONS}:apart", "n_landmarks": 20}
    yield _case(methods, "objects in partitions", numbers, {**objects, "partition_mib": 1}, batch=batch)
