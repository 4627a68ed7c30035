"""Cluster files: the fields that they may have, the kinds of clusters, and how a file is read.

Each pattern of a field admits what its use needs, and nothing with a meaning in a shell: batch systems get their
options as lines of a script and as words of a command, so no field may hold a space, a quote, a line break or any other
sign of a shell, nor begin with a dash.
"""

from __future__ import annotations

import os
import re
import reprlib
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError, model_validator

from reid_dist.core.credentials import without_credentials
from reid_dist.core.environment import SCREEN_VARIABLE
from reid_dist.core.formatting import byte_size
from reid_dist.core.registry import nearest_hint
from reid_dist.core.validation import Problem, file_refusal, problems_of
from reid_dist.core.yaml_text import read_yaml_file
from reid_dist.errors import InputError

# ---- fields ----------------------------------------------------------------------------------------------------------

_LETTERS = "kKMGTiB "
_UNITS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {
    prefix + unit: base**power
    for power, prefix in enumerate(("k", "M", "G", "T"), start=1)
    for unit, base in (("B", 1000), ("iB", 1024))
}
_BYTES["KiB"] = _BYTES.pop("kiB")

LEAST_MEMORY: Final = 192 << 20
"""Bytes of the smallest worker.

A worker takes 114 MiB after its start and 140 MiB after the smallest evaluation (measured on Linux, Python 3.11, with
1 and 8 threads).  Dask pauses a worker at 80% of its limit and ends it at 95%: with less, it would be ended and
started again for ever.
"""

# Allowed settings: numbers for time-outs, retries and memory.  Preloads, plugins, routes and environments would run
# code that the file names.
_SETTINGS = re.compile(
    r"distributed\.("
    r"scheduler\.(no-workers-timeout|allowed-failures|worker-ttl|work-stealing(-interval)?|worker-saturation"
    r"|idle-timeout|bandwidth|unknown-task-duration|default-task-durations)"
    r"|worker\.(memory\.(target|spill|pause|terminate|recent-to-old-time|max-spill|rebalance\.[a-z-]+)"
    r"|lifetime\.(duration|stagger|restart)|connections\.(outgoing|incoming)|transfer\.message-bytes-limit"
    r"|multiprocessing-method)"
    r"|comm\.(timeouts\.(connect|tcp)|retry\.(count|delay\.(min|max))|compression|shard|offload)"
    r"|adaptive\.(interval|target-duration|minimum|maximum|wait-count)"
    r"|client\.(heartbeat|scheduler-info-interval)"
    r"|deploy\.lost-worker-timeout"
    r"|admin\.(tick\.(interval|limit)|log-length)"
    r")"
)

# Form of the value of a setting, by the end of its name; all other values are free.
_TIMES = (
    r"timeout|worker-ttl|interval|target-duration|recent-to-old-time|lifetime\.(duration|stagger)|connect|tcp"
    r"|delay\.(min|max)|heartbeat|unknown-task-duration|tick\.limit"
)
_TIME = re.compile(r"\d+(\.\d+)? ?(ms|s|m|h|d|seconds?|minutes?|hours?|days?|milliseconds?)", re.IGNORECASE)
_VALUES: tuple[tuple[re.Pattern[str], str, Any], ...] = (
    (
        re.compile(rf".*[.-]({_TIMES})"),
        "a time such as 90s or 5 minutes",
        lambda value: value is None or _is_number(value, 1e9) or (isinstance(value, str) and _TIME.fullmatch(value)),
    ),
    (
        re.compile(r".*\.memory\.(target|spill|pause|terminate)"),
        "a share from 0 to 1, or false",
        lambda value: value is False or _is_number(value, 1.0),
    ),
    (
        re.compile(r".*\.(allowed-failures|count|wait-count|outgoing|incoming|minimum|log-length)"),
        "a whole number",
        lambda value: type(value) is int and value >= 0,
    ),
    (
        re.compile(r".*\.multiprocessing-method"),
        "spawn, fork or forkserver",
        lambda value: value in ("spawn", "fork", "forkserver"),
    ),
)


def _is_number(value: Any, largest: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= largest


def _matching(pattern: str, wanted: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"should be {wanted}")
        return text

    return AfterValidator(check)


def _settings(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse settings that could run code, and values that Dask cannot read."""
    for name, value in found.items():
        if _SETTINGS.fullmatch(name) is None:
            raise ValueError(
                f"{name} should be a Dask setting of time-outs, memory, lifetime, retries or stealing, such as "
                "distributed.scheduler.no-workers-timeout; others could run code and are not taken"
            )
        for pattern, wanted, fits in _VALUES:
            if pattern.fullmatch(name) and not fits(value):
                raise ValueError(f"{name} should be {wanted}")
    return found


def memory_bytes(memory: str) -> int:
    """Bytes of a `Memory`."""
    number, unit = memory.rstrip(_LETTERS), memory.lstrip("0123456789. ")
    return int(float(number) * _BYTES[unit])


def seconds(time: str) -> int:
    """Seconds of a `Walltime` or a `Duration`."""
    if ":" not in time:
        return int(time[:-1]) * _UNITS[time[-1]]
    hours, minutes, rest = (int(part) for part in time.split(":"))
    return 3600 * hours + 60 * minutes + rest


def _enough(memory: str) -> str:
    if memory_bytes(memory) < LEAST_MEMORY:
        raise ValueError(f"should be at least {byte_size(LEAST_MEMORY)}, which a worker needs before any work")
    return memory


Name = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,127}", "a name of letters, digits and _ . @ + -")]
HostName = Annotated[
    str,
    _matching(
        r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*",
        "a host name or an IPv4 address",
    ),
]
Interface = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}", "a network interface such as ib0")]
Memory = Annotated[
    str,
    _matching(r"\d+(\.\d+)? ?(kB|KiB|[MGT]i?B)", "a size such as 8GiB"),
    AfterValidator(_enough),
]
Walltime = Annotated[str, _matching(r"\d{1,3}:[0-5]\d:[0-5]\d", "a time as HH:MM:SS")]
Duration = Annotated[str, _matching(r"[1-9]\d{0,6}[smh]", "a time such as 90s, 55m or 4h")]
FilePath = Annotated[
    str,
    _matching(r"(~/|/)?[A-Za-z0-9_.][A-Za-z0-9_.@+/-]*", "a path of letters, digits and _ . @ + - /"),
]
ModuleName = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}", "a module such as python/3.12")]
ResourceSpec = Annotated[
    str,
    _matching(r"[A-Za-z0-9_.]+=[A-Za-z0-9_.]+(,[A-Za-z0-9_.]+=[A-Za-z0-9_.]+)*", "resources such as h_vmem=8G,gpu=0"),
]
DaskSettings = Annotated[dict[str, str | int | float | bool | None], AfterValidator(_settings)]
# In YAML, true is no number and "2" is text.
Count = Annotated[int, Strict(), Field(ge=1)]
Flag = Annotated[bool, Strict()]
# Seconds; more than a month is taken for a mistake.
Timeout = Annotated[float, Strict(), Field(gt=0, le=31 * 86_400, allow_inf_nan=False)]


# ---- kinds -----------------------------------------------------------------------------------------------------------


class Described(BaseModel):
    """Fields of every cluster file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = ""
    screen: Literal["float32", "int8"] | None = Field(
        default=None,
        description="Products to screen with, on all workers; by default the faster one on each. "
        f"{SCREEN_VARIABLE} takes precedence.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto",
        description="Where workers compute products: auto uses a GPU if torch finds one and the job is large enough.",
    )

    @property
    def expects_gpus(self) -> bool:
        """Whether workers have GPUs that this process may lack."""
        return False


class Threads(Described):
    """Threads of this process; no cluster, hence no Dask settings."""

    kind: Literal["threads"]


class _Distributed(Described):
    """Fields of every cluster file."""

    dask: DaskSettings = Field(default_factory=dict, description="Dask settings by dotted name, over the defaults.")


class LocalCluster(_Distributed):
    """Worker processes on this machine, which listen on loopback and admit only each other."""

    kind: Literal["local"]
    workers: Count | None = Field(default=None, description="Worker processes; by default one per GPU or 8 cores.")
    gpus: Count | None = Field(default=None, description="GPUs of this machine, each for a worker of its own.")
    threads_per_worker: Count | None = Field(default=None, description="By default the cores divided by the workers.")
    memory_limit: str = Field(default="auto", description="Per worker, such as 4GiB; auto divides that of the machine.")
    dashboard: Flag = Field(default=False, description="Whether to serve Dask's dashboard on loopback.")

    @model_validator(mode="after")
    def _one_worker_per_gpu(self) -> LocalCluster:
        if self.gpus is not None and self.workers not in (None, self.gpus):
            raise ValueError(
                f"every GPU has one worker: gpus is {self.gpus}, workers {self.workers}; leave workers out"
            )
        return self


class Secured(_Distributed):
    """Clusters that use a network: certificates, or `insecure`."""

    ca_file: str | None = Field(default=None, min_length=1, description="Authority that signed the certificates.")
    cert_file: str | None = Field(default=None, min_length=1, description="Certificate of this side, PEM.")
    key_file: str | None = Field(default=None, min_length=1, description="Key of the certificate, PEM.")
    insecure: Flag = Field(
        default=False,
        description="Allow unencrypted connections beyond loopback: any process that reaches them can run code.",
    )

    @property
    def expects_gpus(self) -> bool:
        """Whether workers have GPUs: the file names them, or asks for their use."""
        return self.device == "cuda" or getattr(self, "gpus", None) is not None

    @property
    def has_certificates(self) -> bool:
        """Whether all of the three files are named."""
        return self.ca_file is not None

    @model_validator(mode="after")
    def _all_or_none(self) -> Secured:
        files = {name: getattr(self, name) for name in ("ca_file", "cert_file", "key_file")}
        missing = [name for name, path in files.items() if path is None]
        if missing and len(missing) < len(files):
            raise ValueError(f"TLS takes ca_file, cert_file and key_file; there is no {' and no '.join(missing)}")
        return self


class ExistingCluster(Secured):
    """A running scheduler."""

    kind: Literal["existing"]
    address: str | None = Field(default=None, pattern=r"^(tcp|tls)://[^\s/@]+:\d{1,5}$", description="tls://host:port")
    scheduler_file: str | None = Field(default=None, description="File that the scheduler wrote.")
    wait_for_workers: Count = 1
    timeout_s: Timeout = Field(default=60.0, description="How long to wait for the scheduler and its workers.")


class _Started(Secured):
    """Fields of all clusters that are started for a job."""

    wait_for_workers: Count = Field(default=1, description="Workers to wait for before the start.")
    timeout_s: Timeout = Field(default=600.0, description="How long to wait for them.")


class BatchCluster(_Started):
    """Workers as jobs of a batch system; jobs that are lost are submitted again."""

    jobs: Count = Field(description="Jobs to keep running.")
    cores: Count = Field(description="Cores of a job: threads of its workers together.")
    processes: Count = Field(default=1, description="Worker processes of a job.")
    memory: Memory = Field(description="Of a job.")
    walltime: Walltime = Field(description="Of a job, as HH:MM:SS.")
    queue: Name | None = Field(default=None, description="Queue or partition.")
    account: Name | None = Field(default=None, description="Account or project that is charged.")
    interface: Interface | None = Field(default=None, description="Network between scheduler and workers.")
    lifetime: Duration | None = Field(default=None, description="Age at which a worker ends.")
    lifetime_stagger: Duration | None = Field(default=None, description="Most that a lifetime differs, both ways.")
    modules: tuple[ModuleName, ...] = Field(default=(), description="Modules to load before a worker starts.")
    local_directory: FilePath | None = Field(default=None, description="Fast disk of a node.")
    shared_directory: FilePath = Field(
        default="~/.cache/reid-dist", description="Seen by all nodes: output of jobs, temporary certificates."
    )
    python: FilePath | None = Field(default=None, description="Python of the nodes; by default the one that runs.")
    dashboard: Flag = Field(default=False, description="Whether to serve Dask's dashboard on loopback.")

    @model_validator(mode="after")
    def _consistent(self) -> BatchCluster:
        if self.cores % self.processes:
            raise ValueError(f"cores must be shared out evenly: {self.cores} cores, {self.processes} processes")
        if self.wait_for_workers > self.jobs * self.processes:
            raise ValueError(
                f"wait_for_workers is {self.wait_for_workers}, {self.jobs} jobs have {self.jobs * self.processes}"
            )
        if (self.lifetime is None) != (self.lifetime_stagger is None):
            raise ValueError("lifetime and lifetime_stagger go together: workers must not all end at once")
        if self.lifetime is not None and self.lifetime_stagger is not None:
            life, stagger = seconds(self.lifetime), seconds(self.lifetime_stagger)
            if not life <= 2 * stagger < 2 * life:
                raise ValueError("lifetime_stagger must be at least half of lifetime, and less than all of it")
            if life + stagger >= seconds(self.walltime):
                raise ValueError("lifetime and lifetime_stagger together must be less than walltime")
        return self


class SLURMCluster(BatchCluster):
    """Workers as SLURM jobs."""

    kind: Literal["slurm"]
    gpus: Count | None = Field(default=None, description="GPUs of a job, one for each of its worker processes.")
    qos: Name | None = None
    constraint: Name | None = None
    reservation: Name | None = None

    @model_validator(mode="after")
    def _one_process_per_gpu(self) -> SLURMCluster:
        if self.gpus not in (None, self.processes):
            raise ValueError(
                f"every GPU has one worker: gpus is {self.gpus}, processes {self.processes}; make both the same"
            )
        return self


class PBSCluster(BatchCluster):
    """Workers as PBS jobs."""

    kind: Literal["pbs"]


class LSFCluster(BatchCluster):
    """Workers as LSF jobs."""

    kind: Literal["lsf"]
    memory_unit: Literal["kb", "mb", "gb"] = Field(default="kb", description="LSF_UNIT_FOR_LIMITS of the site.")


class SGECluster(BatchCluster):
    """Workers as jobs of Grid Engine."""

    kind: Literal["sge"]
    parallel_environment: Name = Field(description="One with all slots of a job on one node, such as smp.")
    resource_spec: ResourceSpec | None = Field(default=None, description="Memory resource of the site: h_vmem=8G.")


class SLURMJobCluster(_Started):
    """One SLURM job whose tasks all run the same command: one scheduler, one client, and workers."""

    kind: Literal["slurm_single_job"]
    workers: Count = Field(description="Number of tasks of the job minus two.")
    threads_per_worker: Count = Field(description="Cores of a task.")
    memory: Memory = Field(description="Of a worker.")
    interface: Interface | None = Field(default=None, description="Network between scheduler and workers.")
    local_directory: FilePath | None = Field(default=None, description="Fast disk of a node.")
    shared_directory: FilePath = Field(
        default="~/.cache/reid-dist", description="Seen by all nodes: the scheduler's address, temporary certificates."
    )


class SSHCluster(_Started):
    """Workers on hosts that are reached with SSH."""

    kind: Literal["ssh"]
    scheduler_host: HostName = Field(description="Where the scheduler runs.")
    worker_hosts: tuple[HostName, ...] = Field(min_length=1, description="Where workers run; a host may come twice.")
    threads_per_worker: Count
    memory: Memory = Field(description="Of a worker.")
    username: Name | None = Field(default=None, description="By default the one here.")
    port: Count = Field(default=22, le=65535, description="Of the SSH servers.")
    private_key_file: str | None = Field(default=None, description="By default SSH's own.")
    known_hosts_file: str | None = Field(default=None, description="Keys of the hosts; by default SSH's own file.")
    python: FilePath | None = Field(default=None, description="Python of the hosts; by default the one that runs.")
    local_directory: FilePath | None = Field(default=None, description="Fast disk of a host.")


class KubernetesCluster(_Started):
    """Pods that Dask's operator starts."""

    kind: Literal["kubernetes"]
    name: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$")] = "reid-dist"
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "default"
    image: Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$")] = Field(
        description="Container image with this package."
    )
    workers: Count = Field(description="Worker pods.")
    threads_per_worker: Count = Field(description="Cores of a pod.")
    memory: Memory = Field(description="Of a pod.")
    volume_claim: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] | None = Field(
        default=None, description="PersistentVolumeClaim with the stores."
    )
    mount_path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")] = Field(
        default="/data", description="Its path in pods; the command must have the stores under the same path."
    )


class GatewayCluster(_Started):
    """A cluster of a Dask Gateway server."""

    kind: Literal["gateway"]
    address: str = Field(pattern=r"^https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._/-]*)?$", description="Of the server.")
    proxy_address: str | None = Field(default=None, pattern=r"^(tls|gateway)://[A-Za-z0-9.-]+:\d+$")
    auth: Literal["none", "basic", "jupyterhub", "kerberos"] = Field(
        default="none", description="basic takes DASK_GATEWAY_PASSWORD, jupyterhub JUPYTERHUB_API_TOKEN."
    )
    username: Name | None = Field(default=None, description="For basic; by default the one here.")
    workers: Count
    threads_per_worker: Count = Field(description="As the server gives them.")
    memory: Memory = Field(description="Of a worker, as the server gives it.")
    options: dict[Name, str | int | float | bool] = Field(default_factory=dict, description="The server's own options.")


Cluster: TypeAlias = (
    Threads
    | LocalCluster
    | ExistingCluster
    | SSHCluster
    | SLURMCluster
    | SLURMJobCluster
    | PBSCluster
    | LSFCluster
    | SGECluster
    | KubernetesCluster
    | GatewayCluster
)
ClusterConfig = Annotated[Cluster, Field(discriminator="kind")]
KINDS: tuple[type[Described], ...] = get_args(Cluster)
_CLASSES = {get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in KINDS}


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Read and validate a cluster file; the `InputError` names every problem."""
    where = f"cluster file {os.fspath(path)}"
    document = read_yaml_file(path, "cluster file")
    content = document.content
    if not isinstance(content, dict):
        raise InputError(
            f"{where} should have one 'key: value' per line and begin with 'kind:', found {reprlib.repr(content)}"
        )
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _CLASSES:
        found = "there is no kind" if kind is None else f"unknown kind {reprlib.repr(kind)}"
        raise InputError(f"{where}: {found};{nearest_hint(str(kind), _CLASSES)} known: {', '.join(_CLASSES)}")
    try:
        # By the class itself: the union would put the kind into the path of every problem.
        return cast("Cluster", _CLASSES[kind].model_validate(content))
    except ValidationError as error:
        others = {field for each in KINDS for field in each.model_fields}
        problems = problems_of(error, _CLASSES[kind].model_fields, others)
        shown = (Problem(path, without_credentials(text)) for path, text in problems)
        raise file_refusal(where, shown, document) from None


def cluster_schema() -> dict[str, Any]:
    """JSON Schema of cluster files."""
    return TypeAdapter(ClusterConfig).json_schema()
