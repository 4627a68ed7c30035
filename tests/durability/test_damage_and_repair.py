"""Damage at a random moment, repair, and a second run on what the first one left: the right numbers, or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from damaged_stores import DAMAGES, JOBS, Disk, Failed, Job, Sets

_CYCLES = 27


class Trial:
    """Cycles over the jobs; what undisturbed runs compute, and how many reads that takes, is found once for each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sets, self._monkeypatch = Sets(folder), monkeypatch
        self._right: dict[str, tuple[str, int]] = {}
        self.seen = {"right": 0, "refused": 0}

    def _expected(self, job: Job) -> tuple[str, int]:
        if job.name not in self._right:
            with Disk().watched(self._monkeypatch) as disk:
                self._right[job.name] = job.run(self._sets.folder, "undisturbed"), disk.reads
            self._sets.forget()
        return self._right[job.name]

    def _outcome(self, job: Job, run: str, *, resume: bool = False) -> str:
        """Run a job that may end with an error, and never with other numbers."""
        try:
            found = job.run(self._sets.folder, run, resume=resume)
        except Failed as failure:
            self.seen["refused"] += 1
            return str(failure)
        assert found == self._expected(job)[0], f"{job.name}: other numbers, in silence"
        self.seen["right"] += 1
        return ""

    def cycle(self, seed: int, jobs: tuple[Job, Job]) -> None:
        """Damage a store at a random moment of a run, repair it, and run again with the same and other parameters."""
        rng = np.random.default_rng(seed)
        earlier, job = jobs if rng.random() < 0.5 else jobs[::-1]
        folder, n_reads = self._sets.folder, self._expected(job)[1]
        self._expected(earlier)
        if rng.random() < 0.6:
            assert self._outcome(earlier, "earlier") == ""
        store = job.reads[rng.integers(len(job.reads))]
        damage, moment = DAMAGES[rng.integers(len(DAMAGES))], int(rng.integers(n_reads + 1))
        with Disk(moment, lambda: damage(folder / store, rng)).watched(self._monkeypatch) as disk:
            self._outcome(job, "run")
        if not disk.struck:
            damage(folder / store, rng)
        if rng.random() < 0.5:
            self._outcome(earlier, "while damaged")
        self._sets.repair(store, in_place=bool(rng.random() < 0.5))
        for each, run in ((job, "run"), (earlier, "after")):
            assert self._outcome(each, run, resume=True) == "", f"{each.name} is refused after the repair"
        self._sets.forget()

    def transient(self, seed: int, jobs: tuple[Job, Job]) -> None:
        """Other bytes in one read of a whole file: it is read again."""
        rng = np.random.default_rng(seed)
        job = jobs[rng.integers(2)]
        with Disk(int(rng.integers(self._expected(job)[1] + 1)), transient=True).watched(self._monkeypatch):
            assert self._outcome(job, "run") == ""
        self._sets.forget()


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    return Trial(tmp_path / "sets", monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*made again:UserWarning")
@pytest.mark.parametrize("seed", range(12))
def test_any_run_after_damage_gives_the_right_numbers_or_an_error(trial: Trial, seed: int) -> None:
    for number in range(_CYCLES):
        trial.cycle(1000 * seed + number, JOBS[(5 * seed + number) % len(JOBS)])
    assert trial.seen["refused"] >= _CYCLES // 2
    assert trial.seen["right"] >= 2 * _CYCLES


@pytest.mark.parametrize("seed", range(3))
def test_some_runs_after_damage_give_the_right_numbers_or_an_error(trial: Trial, seed: int) -> None:
    for number in range(4):
        trial.cycle(seed + 100 * number, JOBS[(3 * seed + 9 * number) % len(JOBS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_are_wrong_once_are_read_again(trial: Trial, seed: int) -> None:
    for number, jobs in enumerate(JOBS):
        trial.transient(1000 * seed + number, jobs)
