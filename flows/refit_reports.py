"""What commands and flows say of versions: for programs, and in lines for people."""

from flows.reports import fit_report, fit_summary
from pipeline.jobs.refit import Refitted
from pipeline.results.run import open_run
from pipeline.types import Json


def refit_report(store: str, refitted: Refitted) -> Json:
    """All figures of a refit, for programs: those of a fit, and how it goes on from the version before."""
    base, n_rows = refitted.manifest["registered_to"], int(refitted.manifest["source"]["n_rows"])
    return {
        **fit_report(open_run(store, refitted.version), refitted),
        "version": refitted.version,
        "rows": {"old": base["n_rows"], "new": n_rows - base["n_rows"]},
        "registered_to": base["version"],
        "registration": refitted.outcomes["register"].figures,
    }


def refit_summary(report: Json) -> list[str]:
    """What was published and how it lies on the version before, in lines for people."""
    rows, found = report["rows"], report["registration"]
    return [
        *fit_summary(report),
        f"Turned onto version {report['registered_to']} on {found['n_shared']:,} of its landmarks: they are "
        f"{found['rms_after']:.3g} from where they were, {found['relative_rms']:.2%} of their spread (rms).",
        f"Version {report['version']} is published: {rows['old']:,} old and {rows['new']:,} new rows.",
    ]
