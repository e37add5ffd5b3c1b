"""The differences between the records of two trees, and the report on them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.same_bytes.records import BYTES, DIGESTS, FIGURES

# Of each case each job: its record, or its error.
Records = Mapping[str, Mapping[str, Mapping[str, Any]]]
TITLES = {BYTES: "Published bytes", FIGURES: "Figures", DIGESTS: "Stage digests"}
LISTED_LEAVES = 4


@dataclass(frozen=True)
class Difference:
    """Something that one tree has and the other has not, or has otherwise."""

    group: str
    case: str
    job: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"  {self.case} | {self.job} | {self.what}: {self.detail}"


def differences(before: Records, after: Records) -> Iterator[Difference]:
    """All of them, in the order of the cases."""
    for case in sorted({*before, *after}):
        if case not in before or case not in after:
            yield Difference(BYTES, case, "all", "case", f"only in the {'newer' if case in after else 'older'} tree")
            continue
        for job in dict.fromkeys([*before[case], *after[case]]):
            yield from _of_job(case, job, before[case].get(job), after[case].get(job))


def _of_job(
    case: str, job: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[Difference]:
    if before is None or after is None:
        yield Difference(BYTES, case, job, "job", f"only in the {'older' if after is None else 'newer'} tree")
    elif "error" in before or "error" in after:
        if not ("error" in before and "error" in after):
            tree, error = ("older", before["error"]) if "error" in before else ("newer", after["error"])
            yield Difference(BYTES, case, job, f"raises in the {tree} tree only", error)
    else:
        for group in TITLES:
            yield from _of_group(group, case, job, before[group], after[group])


def _of_group(
    group: str, case: str, job: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    for what in sorted({*before, *after}):
        if what not in before or what not in after:
            yield Difference(group, case, job, what, f"only in the {'newer' if what in after else 'older'} tree")
        elif _text(before[what]) != _text(after[what]):
            yield Difference(group, case, job, what, _detail(before[what], after[what]))


def _text(value: Any) -> str:
    """The same for the same value, also if that is not a number."""
    return json.dumps(value, sort_keys=True)


def _detail(before: Any, after: Any) -> str:
    """The first few entries that differ."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    changed = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    listed = [f"{key} {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}".strip() for key in changed]
    more = f"; {len(listed) - LISTED_LEAVES} more" if len(listed) > LISTED_LEAVES else ""
    return "; ".join(listed[:LISTED_LEAVES]) + more


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from _leaves(entry, f"{path}.{key}" if path else str(key))
    else:
        yield path, _text(value)


def skipped(before: Records, after: Records) -> list[str]:
    """What neither tree can do, with the error of the newer."""
    return [
        f"  {case} | {job}: {outcome['error']}"
        for case, jobs in after.items()
        for job, outcome in jobs.items()
        if "error" in outcome and "error" in before.get(case, {}).get(job, {})
    ]


def report(before: Records, after: Records) -> tuple[list[str], int]:
    """Every line to print, and the exit code: 1 if bytes or figures differ."""
    found = list(differences(before, after))
    lines = []
    for group, title in TITLES.items():
        of_group = [str(difference) for difference in found if difference.group == group]
        if of_group:
            lines += [f"{title}: {len(of_group)} differences", *of_group]
    errors = skipped(before, after)
    if errors:
        lines += [f"Skipped, since both trees raise: {len(errors)} jobs", *errors]
    if not found:
        lines.append(f"{len(after)} cases, {_n_arrays(after)} arrays: the same")
    return lines, int(any(difference.group != DIGESTS for difference in found))


def _n_arrays(records: Records) -> int:
    return sum(len(outcome.get(BYTES, {})) for jobs in records.values() for outcome in jobs.values())
