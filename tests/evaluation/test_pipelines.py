"""Pipeline files: every field, protocols put together in YAML, overrides, and all problems in one message."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from support.refusals import in_full

from reid_dist import compose_protocol, evaluate
from reid_dist.cli.evaluate_command import command
from reid_dist.cli.sweep_command import command as sweep_command
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.evaluation.pipelines import PipelineJob, ProtocolComponents, SweptParameters, read_job
from reid_dist.relevance.protocols import PROTOCOLS, Protocol

# Suites of many jobs lie beside them.
PIPELINES = sorted((Path(__file__).parents[2] / "pipelines").glob("[!n]*.yaml"))


@pytest.fixture
def read(tmp_path):
    """Read a job of given text; by default with two sides that exist."""

    def call(text="", *overrides, sides="query: a\ngallery: b\n"):
        path = tmp_path / "job.yaml"
        path.write_text(sides + text)
        return read_job(path, overrides)

    return call


# ------------------------------------------------------------------------------------------------------- fields


def test_a_job_has_every_option_of_evaluate():
    """But for the inputs and the place, nothing that `evaluate` takes is forgotten, and the defaults are the same."""
    taken = inspect.signature(evaluate).parameters
    # The benchmark is a field of the job, which its options follow.
    here = {"query", "gallery", "client", "workspace", "progress", "benchmark", "other_codes"}
    job = PipelineJob(query="a", gallery="b")
    assert set(job.options()) == set(taken) - here
    for name, value in job.options().items():
        assert value == taken[name].default, name


def test_options_of_a_job_are_those_of_evaluate():
    given = {
        "protocol": "cuhk03", "metrics": ("mAP", "P@3"), "max_rank": 7, "ground_truth": "gt.json", "topk": 4,
        "ties": True, "breakdowns": ("camera", "clothes"), "gallery_sizes": (10, 0.5, 1.0), "gallery_order": "random",
        "single_shot_draws": 3, "roc": True, "confidence": None, "seed": 9, "chunk_rows": 100, "collapse": "CMC:pid",
        "expand": "aqe(k=2)", "rerank": "k_reciprocal(k1=9)", "distance": "euclidean",
        "against_plain": True,
    }  # fmt: skip
    options = PipelineJob(query="a", gallery="b", **given).options()
    assert options == given
    assert [type(size) for size in options["gallery_sizes"]] == [int, float, float]


def test_the_command_has_an_option_for_every_field():
    """Beside the description, which is for files, and the sweep and the splits, which are commands of their own."""
    there = {parameter.name for parameter in command.params}
    assert set(PipelineJob.model_fields) - there == {"description", "sweep", "splits"}


def test_a_sweep_has_the_options_of_the_command(read):
    job = read("""
expand: dba(k=5)+aqe
sweep: {k: 1:10, alpha: [0, 2.5]}
metrics: [mAP]
seed: 3
""")
    # Not 70, as YAML reads a number with a colon.
    assert job.sweep_options() == {
        "protocol": "market1501",
        "distance": "cosine",
        "metrics": ("mAP",),
        "max_rank": 50,
        "ground_truth": None,
        "expand": "dba(k=5)+aqe",
        "rerank": None,
        "single_shot_draws": None,
        "seed": 3,
        "collapse": None,
        "chunk_rows": None,
        "k": "1:10",
        "alpha": (0, 2.5),
    }
    swept = {parameter.name for parameter in sweep_command.params}
    assert set(SweptParameters.model_fields) <= swept


def test_a_sweep_takes_nothing_that_it_does_not_compute(read):
    job = read("sweep: {k: 3}\nexpand: aqe\ntopk: 5\nties: true\nconfidence: 0.9")
    with pytest.raises(InputError, match="leave out topk, ties, or run"):
        job.sweep_options()


def test_numbers_are_decimal(read):
    assert read("max_rank: 10\ngallery_sizes: [5, 1e3, .5]").gallery_sizes == (5, 1000.0, 0.5)
    with pytest.raises(InputError, match="max_rank"):
        read("max_rank: 1:10")


@pytest.mark.parametrize("wrong", ["sweep: {k3: 1}", "sweep: [1]", "sweep: {k: {a: 1}}", "sweep: 5"])
def test_sweeps_of_other_shapes_are_refused(read, wrong):
    with pytest.raises(InputError, match="sweep"):
        read(wrong)


def test_parts_are_those_of_a_protocol():
    assert set(ProtocolComponents.model_fields) == {field.name for field in fields(Protocol)} | {"base"}


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_pipelines_that_come_along_are_jobs(path):
    job = read_job(path)
    assert job.description
    rules = job.rules if isinstance(job.rules, Protocol) else PROTOCOLS.get(job.rules)
    assert rules.source


# -------------------------------------------------------------------------------------------- protocols of parts


def test_a_protocol_of_parts(read):
    job = read("""
protocol:
  name: clothes
  base: market1501
  summary: other clothes
  source: me
  junk: [[pid, camid], [pid, clothes]]
  junk_pid: -5
  gallery_cameras: [3]
  invalid_query: counts as 0
  cmc_family: CMC_allshots
  ap_family: mAP_trapezoid
  reported: [P@10]
""")
    assert job.options()["protocol"] == job.rules == Protocol(
        name="clothes",
        summary="other clothes",
        source="me",
        junk=(("pid", "camid"), ("pid", "clothes")),
        junk_pid=-5,
        gallery_cameras=(3,),
        invalid_query="counts as 0",
        cmc_family="CMC_allshots",
        ap_family="mAP_trapezoid",
        reported=("P@10",),
    )  # fmt: skip


def test_what_is_left_out_is_that_of_the_base(read):
    rules = read("protocol: {name: mine, base: market1501_matlab, junk: [[camid]]}").rules
    base = PROTOCOLS.get("market1501_matlab")
    assert rules == compose_protocol("mine", base=base, junk=[["camid"]])
    assert (rules.invalid_query, rules.ap_family, rules.junk_pid) == (base.invalid_query, base.ap_family, base.junk_pid)
    # It is not the base, and does not pass for it.
    assert rules.summary != base.summary
    assert "market1501_matlab" in rules.summary


def test_a_protocol_without_a_junk_pid(read):
    """Null is a value of its own where the base has another, and means what is left out elsewhere."""
    assert read("protocol: {name: mine, base: market1501}").rules.junk_pid == -1
    assert read("protocol: {name: mine, base: market1501, junk_pid: null}").rules.junk_pid is None
    assert read("protocol: {name: mine, base: market1501, junk: null, summary: null}").rules.junk == (("pid", "camid"),)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            "{name: x, junkk: [[pid]], query_cameras: [west], invalid_query: zero}",
            ["3 problems", "junkk: unknown key, did you mean 'junk'?", "query_cameras.0", "found 'west'",
             "'left out' or 'counts as 0', found 'zero'"],
        ),
        ("{junk: [pid, camid], cmc_family: cmc}", ["4 problems", "name: missing", "junk.0", "found 'pid'", "junk.1",
                                                   "found 'camid'", "cmc_family", "found 'cmc'"]),
        ("{name: x, ap_family: AP, reported: mAP}", ["2 problems", "found 'AP'", "reported", "found 'mAP'"]),
        ("3", ["line 3, protocol: ", "found 3"]),
        ("[market1501]", ["line 3, protocol: ", "found ['market1501']"]),
        ("null", ["line 3, protocol: ", "found None"]),
        ("{name: x, base: markt1501}", ["unknown protocol 'markt1501'; did you mean 'market1501'?"]),
        ("{name: x, junk: [[camid], [clothes]]}", ["one rule of a single label", "('camid',), ('clothes',)"]),
        ("{name: market1501, junk: [[camid]]}", ["'market1501' is a protocol already"]),
        ("{name: x, base: oxford, junk: [[camid]]}", ["goes by lists, so junk would have no effect"]),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_before_anything_is_read(read, parts, message):
    with pytest.raises(InputError) as refused:
        read(f"protocol: {parts}\n")
    for text in message:
        assert text in in_full(refused.value)


# ----------------------------------------------------------------------------------------------------- overrides


def test_values_are_yaml(read):
    job = read(
        "max_rank: 7\n", "max_rank=20", "gallery_sizes=[0.5, 100]", "metrics=[mAP, TAR@FAR=1e-3]", "confidence=null",
        "ties=true", "pictures=hardest", "breakdowns=[camera]",
    )  # fmt: skip
    assert (job.max_rank, job.gallery_sizes, job.confidence, job.ties) == (20, (0.5, 100), None, True)
    assert (job.metrics, job.pictures, job.breakdowns) == (("mAP", "TAR@FAR=1e-3"), "hardest", ("camera",))
    assert read("", "pictures=[3, 17]").pictures == (3, 17)
    assert read("", "query=path=with=signs").query == "path=with=signs"
    assert read("seed: 3\n", "seed=4", "seed=5").seed == 5
    assert read("", "seed=18446744073709551615").seed == 2**64 - 1
    assert read("breakdowns: [camera]\n", "breakdowns=null").options()["breakdowns"] is None


def test_a_dot_reaches_into_a_protocol(read):
    rules = read(
        "protocol: {name: mine, base: market1501}\n", "protocol.base=allshots", "protocol.junk=[[camid]]"
    ).rules
    assert (rules.cmc_family, rules.junk) == ("CMC_allshots", (("camid",),))
    assert read("", "protocol.name=mine", "protocol.query_cameras=[1]").rules.query_cameras == (1,)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("max_rank", "--set takes KEY=VALUE, found 'max_rank'"),
        ("metrics=[mAP", "--set metrics: the value is not YAML"),
        ("protocol.base=oxford", "protocol is 'market1501' and has no fields"),
        ("max_rnk=3", "max_rnk: unknown key, did you mean 'max_rank'"),
        ("max_rank=0", "max_rank: must be a whole number from 1 to 2**31 - 1, found 0"),
        ("seed=-1", "seed: must be a whole number from 0 to 2**64 - 1, found -1"),
        ("seed=1.0", "seed: must be a whole number from 0 to 2**64 - 1, found 1.0"),
        ("gallery_order=shuffled", "must be stored or random, found 'shuffled'"),
        ("breakdowns=camera", "breakdowns"),
        ("pictures=easiest", "found 'easiest'"),
    ],
)
def test_invalid_overrides(read, override, part):
    with pytest.raises(InputError) as refused:
        read("protocol: market1501\n", override)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


# --------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\xff\xfe\x00", "is not YAML"),
        (b"query: [", "is not YAML"),
        (b"query: 2020-19-45", "is not YAML"),
        (b"", "holds no job"),
        (b"[1, 2]", "holds no job"),
        (b"1: 2\n", "query: missing"),
        (b"query: {a: b}\n", "gallery: missing"),
    ],
)
def test_files_that_hold_no_job(tmp_path, content, part):
    (tmp_path / "job.yaml").write_bytes(content)
    with pytest.raises(InputError, match=part) as refused:
        read_job(tmp_path / "job.yaml")
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"there is no pipeline file"):
        read_job(tmp_path / "none.yaml")
    with pytest.raises(StoreError, match="directory"):
        read_job(tmp_path)


def test_wrong_names_are_reported_with_every_other_problem(read):
    with pytest.raises(InputError) as refused:
        read("""
protocol: markt1501
distance: cosin
metrics: [mAP, mINPP]
expand: dba(k=5)+alpha_qq(k=2)
rerank: k_reciprocal(lambda=0.3)
max_rnk: 10
topk: 0
""")
    for text in (
        ": 7 problems",
        "protocol: unknown protocol 'markt1501'; did you mean 'market1501'?",
        "distance: unknown distance 'cosin'; did you mean 'cosine'?",
        "metrics: unknown metric 'mINPP'; did you mean 'mINP'?",
        "expand: unknown expansion 'alpha_qq'; did you mean 'alpha_qe'?",
        "rerank: unknown parameter of k_reciprocal 'lambda'; did you mean 'lambda_value'?",
        "max_rnk: unknown key, did you mean 'max_rank'?",
        "topk: must be a whole number from 1 to 2**31 - 1, or None, found 0",
    ):
        assert text in in_full(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expand: aqe", "expand: aqe needs the number of neighbours"),
        ("expand: dba+aqe\nsweep: {k: 3}", "expand: dba needs the number of neighbours"),
        ("expand: aqq\nsweep: {k: 3}", "unknown expansion 'aqq'; did you mean 'aqe'?"),
        ("expand: aqe(kk=3)\nsweep: {k: 3}", "unknown parameter of aqe 'kk'"),
    ],
)
def test_specs_are_read_with_the_file(read, text, message):
    """Only what is swept may be left out."""
    with pytest.raises(InputError) as refused:
        read(text)
    assert message in str(refused.value)
    assert not refused.value.details


def test_a_message_about_expanding_aliases_is_short(tmp_path):
    levels = [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = tmp_path / "job.yaml"
    path.write_text("\n".join(["query: q", "gallery: g", "x0: &a0 [lol]", *levels, "distance: *a11"]))
    with pytest.raises(InputError) as raised:
        read_job(path)
    assert "use fewer aliases" in str(raised.value)
    assert len(str(raised.value)) < 3000
