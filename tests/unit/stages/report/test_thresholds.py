"""The report's table of thresholds by language."""

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import tables


def test_thresholds_of_each_language_beside_those_for_all() -> None:
    rule = "gopher_quality.mean_word_length_max"
    calibrated = {"documents": {"fi": 1200}, "thresholds": {"fi": {rule: 13.2}}}
    made = {
        "heuristics.calibrate": [Manifest("heuristics.calibrate", "x", summary=calibrated)],
        "heuristics.select": [Manifest("heuristics.select", "x", summary={"thresholds": {rule: 10}})],
    }
    row = {"language": "fi", "documents": "1,200", "rule": rule, "threshold": "13.2", "every": "10"}
    assert tables.threshold_rows(Run(made)) == [row]
    assert tables.threshold_rows(Run({})) == []
