"""Certificates, the rule that connections beyond loopback are encrypted, and directories of this user alone."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import ipaddress
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reid_dist.core.regular_files import MOST_SETTINGS, read_named
from reid_dist.core.temporary import temporary_directory
from reid_dist.errors import InputError

if TYPE_CHECKING:
    from distributed import Security

    from reid_dist.clusters.kinds import Secured

_ROLES = ("client", "scheduler", "worker")
FIELDS = ("tls_ca_file", *(f"tls_{role}_{part}" for role in _ROLES for part in ("cert", "key")))
"""Attributes of `distributed.Security` that hold certificates and keys."""

# Of certificates that last as long as their run, whatever the clocks of nodes say, or are set to meanwhile.  The end is
# the one that means none, of RFC 5280.
_VALID_FROM = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_VALID_UNTIL = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def certificates(config: Secured) -> Security | None:
    """Certificates that a cluster file names; None where it names none."""
    if not config.has_certificates:
        return None
    paths = {}
    for name in ("ca_file", "cert_file", "key_file"):
        path = Path(getattr(config, name)).expanduser()
        read_named(path, f"{name} of the cluster", MOST_SETTINGS)
        # Absolute: workers start in other directories.
        paths[name.removesuffix("_file")] = str(path.absolute())
    security = security_of(paths)
    try:
        security.get_connection_args("client")
    except OSError as error:
        # Errors of TLS are a subclass.
        raise InputError(
            f"ca_file, cert_file and key_file of the cluster are no certificate with its key, as PEM: {error}"
        ) from None
    return security


def security_of(pem: Mapping[str, str]) -> Security:
    """Authority, certificate and key for every role; each as the path of a file, or as its content."""
    from distributed import Security

    roles = {f"tls_{role}_{part}": pem[part] for role in _ROLES for part in ("cert", "key")}
    return Security(tls_ca_file=pem["ca"], require_encryption=True, **roles)


@contextlib.contextmanager
def certificates_on_disk(config: Secured, folder: Path) -> Iterator[Security | None]:
    """Certificates of the file; without any, None for ``insecure``, or new ones.

    New ones are files of this user alone in `folder`, until the end.
    """
    security = certificates(config)
    if security is not None or config.insecure:
        yield security
        return
    with new_certificates(folder) as security:
        yield security


@contextlib.contextmanager
def new_certificates(folder: Path) -> Iterator[Security]:
    """Certificates made for one run, in files of mode 0600 in a directory of mode 0700 that is removed at the end."""
    with contextlib.ExitStack() as stack:
        place = tempfile.mkdtemp(prefix="certificates-", dir=folder)
        remove = partial(shutil.rmtree, place, ignore_errors=True)
        # A process that is ended at once calls its exit handlers, also while this context is being left.
        atexit.register(remove)
        stack.callback(atexit.unregister, remove)
        stack.callback(remove)
        paths = {}
        for name, text in new_pem().items():
            path = Path(place, f"{name}.pem")
            path.touch(mode=0o600)
            path.write_text(text)
            paths[name] = str(path)
        yield security_of(paths)


def new_pem() -> dict[str, str]:
    """A key and a self-signed certificate, as PEM, which admit the holders of the key alone.

    An elliptic-curve key: an RSA key takes up to a tenth of a second to make, and longer in every handshake.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "reid-dist")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    kept = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {"ca": pem, "cert": pem, "key": key.private_bytes(*kept).decode()}


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or `localhost`."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_connection(address: str) -> str | None:
    """Warning about a connection to a scheduler without TLS; None for a connection with TLS or within one process."""
    scheme, _, rest = address.partition("://")
    if scheme != "tcp":
        return None
    users = "every user of this machine" if is_loopback(rest.rpartition(":")[0]) else "every process that reaches it"
    return (
        f"warning: {address} does not use TLS: {users} can run code with the rights of its workers and of this "
        "command; see Security in cluster_configs/README.md"
    )


def refuse_open_network(config: Secured, what: str) -> None:
    """Refuse an unencrypted connection beyond loopback, unless the file has ``insecure: true``."""
    if not config.insecure:
        raise InputError(
            f"{what} is beyond this machine and not encrypted: any process that reaches it can run code there; use TLS "
            "(ca_file, cert_file and key_file), or write 'insecure: true' on a private network"
        )


# ---- directories of this user alone ----------------------------------------------------------------------------------

SCRATCH_MODULE: Final = "reid_dist.clusters.remote_scratch"
"""Module that is preloaded by nannies of workers that another program starts, for their scratch.

Scratch of workers, where spilled data goes, is a directory of this user alone whatever the umask: Dask makes one of a
fixed name in the temporary directory, by the umask, and shares one that exists.
"""


def private_directory(path: str) -> Path:
    """Make a directory of this user alone within `shared_directory`: keys are put there."""
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"cannot make shared_directory {str(folder)!r} of the cluster: {error.strerror}") from None
    return folder


def scratch_directory(place: str | os.PathLike[str] | None = None) -> tempfile.TemporaryDirectory[str]:
    """Make a directory of mode 0700 in `place`, or where Dask keeps temporary files; it is removed with the process."""
    import dask

    place = place or dask.config.get("temporary-directory", None)
    if place is None:
        return temporary_directory()
    folder = Path(place).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return temporary_directory(str(folder))


@contextlib.contextmanager
def private_scratch() -> Iterator[str]:
    """Have schedulers and nannies of this process, and their workers, use a new scratch directory."""
    import dask

    with scratch_directory() as folder, dask.config.set({"temporary-directory": folder}):
        yield folder
