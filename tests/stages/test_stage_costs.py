"""Costs of stages, one after the other."""

from __future__ import annotations

from functools import reduce
from operator import add

from hypothesis import given
from hypothesis import strategies as st

from reid_dist.stages.search_plan import Cost

_bytes = st.integers(0, 1000)
costs = st.lists(st.builds(Cost, _bytes, _bytes, _bytes, _bytes, _bytes), min_size=1, max_size=6)


@given(costs)
def test_a_sum_is_that_of_stages_one_after_the_other(stages: list[Cost]) -> None:
    """The workspace holds what is kept until then, and for a while the temporary files of the stage that runs."""
    total = reduce(add, stages)
    held, most = 0, 0
    for each in stages:
        most = max(most, held + each.kept + each.temporary)
        held += each.kept
    assert (total.kept, total.workspace_bytes) == (held, most)
    assert total.task_bytes == max(each.task_bytes for each in stages)
    assert (total.flop, total.bytes_read) == (
        sum(each.flop for each in stages),
        sum(each.bytes_read for each in stages),
    )
