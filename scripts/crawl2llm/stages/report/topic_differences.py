"""Whether a filter takes more of a topic away than of other documents, and how sure that is.

A topic's share is compared with that of the other documents of its model (its language). Pages of one host share their fate, so the
spread is that over parts of the hosts, by a jackknife that leaves out one part at a time (Kott 2001, "The delete-a-group jackknife"). It is
at least that of independent documents, of which as many are dropped in the topic as elsewhere: where a topic is dropped as a whole or
not at all, its parts do not differ. And where less is dropped than elsewhere, few hosts say how widely shares differ, and the jackknife
finds differences in noise (tests/unit/stages/report/test_topic_differences.py): there it is also at least what the parts would add up to if
there were no difference, as in a score test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

PARTS_MIN = 5  # of the hosts that a topic has documents of, to be compared
LEVEL = 0.05  # of an interval, and of the chance that any of the comparisons finds what is not there


@dataclass(frozen=True)
class Difference:
    """documents, dropped: of the topic. share: of it that is dropped. other: of the other documents. stderr: of their difference, with
    `freedom` degrees.
    """

    documents: int
    dropped: int
    share: float
    other: float
    stderr: float
    freedom: int

    @property
    def excess_share(self) -> float:
        """How much more of the topic is dropped, from -1 to 1."""
        return self.share - self.other

    def half_width(self, comparisons: int = 1) -> float:
        """Half the width of the interval around the difference, for so many comparisons at once (Bonferroni)."""
        return float(stdtrit(self.freedom, 1 - LEVEL / (2 * comparisons))) * self.stderr


def topic_difference(documents: npt.NDArray[np.int64], dropped: npt.NDArray[np.int64], topic: int) -> Difference | None:
    """The difference of a topic from the others of its model; None if it has documents of fewer than PARTS_MIN parts of the hosts,
    there are no others, or nothing was dropped.

    documents, dropped: [topics, parts], those that got to a filter and those that it dropped.
    """
    topic_counts, topic_dropped = documents[topic], dropped[topic]
    rest_counts, rest_dropped = documents.sum(axis=0) - topic_counts, dropped.sum(axis=0) - topic_dropped
    present = (topic_counts + rest_counts) > 0
    if (topic_counts > 0).sum() < PARTS_MIN or (rest_counts > 0).sum() < PARTS_MIN or not dropped.any():
        return None

    def share_difference(without: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        sums = [part.sum() - without * part for part in (topic_dropped, topic_counts, rest_dropped, rest_counts)]
        return np.asarray(sums[0] / sums[1] - sums[2] / sums[3])

    parts = int(present.sum())
    estimates = share_difference(np.ones(len(topic_counts), np.int64))[present]
    spread = (parts - 1) / parts * float(((estimates - estimates.mean()) ** 2).sum())
    pooled = float(dropped.sum() / documents.sum())
    topic_excess = (topic_dropped - pooled * topic_counts) / topic_counts.sum()
    excess = topic_excess - (rest_dropped - pooled * rest_counts) / rest_counts.sum()
    even = parts / (parts - 1) * float((excess**2).sum()) if excess.sum() < 0 else 0.0
    least = pooled * (1 - pooled) * float(1 / topic_counts.sum() + 1 / rest_counts.sum())
    return Difference(
        int(topic_counts.sum()),
        int(topic_dropped.sum()),
        float(topic_dropped.sum() / topic_counts.sum()),
        float(rest_dropped.sum() / rest_counts.sum()),
        max(spread, even, least) ** 0.5,
        int((topic_counts > 0).sum()) - 1,
    )
