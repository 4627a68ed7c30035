"""Certificates, and the rule that connections beyond loopback are encrypted."""

from __future__ import annotations

import contextlib
import ipaddress
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.kinds import Secured
from reid_dist.errors import InputError

if TYPE_CHECKING:
    from distributed import Security

__all__ = ["certificates", "certificates_on_disk", "is_loopback", "refuse_open_network", "temporary_certificates"]

_ROLES = ("client", "scheduler", "worker")


def certificates(config: Secured) -> Security | None:
    """Certificates that a cluster file names; None where it names none.

    Raises
    ------
    InputError
        If a file cannot be read or is no certificate.
    """
    if not config.has_certificates:
        return None
    paths = {}
    for name in ("ca_file", "cert_file", "key_file"):
        path = Path(getattr(config, name)).expanduser()
        try:
            path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name} {str(path)!r} of the cluster: {error.strerror}") from None
        # Absolute, for workers start in directories of their own.
        paths[name] = str(path.absolute())
    security = _from_files(paths)
    try:
        security.get_connection_args("client")
    except OSError as error:
        # Errors of TLS are of this kind too, and say little.
        raise InputError(
            f"ca_file, cert_file and key_file of the cluster are no certificate with its key, as PEM: {error}"
        ) from None
    return security


def _from_files(paths: Mapping[str, str]) -> Security:
    from distributed import Security

    roles = {f"tls_{role}_{part}": paths[f"{part}_file"] for role in _ROLES for part in ("cert", "key")}
    return Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)


@contextlib.contextmanager
def certificates_on_disk(config: Secured, folder: Path) -> Iterator[Security | None]:
    """The same as `temporary_certificates`, in files that other machines see, for as long as they are needed.

    Parameters
    ----------
    config
        What names certificates, or does not.
    folder
        Where new ones are written, readable for this user alone.
    """
    security = temporary_certificates(config)
    if security is None or config.has_certificates:
        yield security
        return
    with tempfile.TemporaryDirectory(prefix="certificates-", dir=folder) as place:
        # The names that Dask itself uses; of one certificate for all roles.
        made = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
        paths = {}
        for name, field in made.items():
            path = Path(place) / f"{name}.pem"
            path.touch(mode=0o600)
            path.write_text(getattr(security, field))
            paths[f"{name}_file"] = str(path)
        yield _from_files(paths)


def temporary_certificates(config: Secured) -> Security | None:
    """Certificates of the file; without any, new ones for this run, or None for ``insecure``.

    Raises
    ------
    InputError
        If certificates cannot be read, or cannot be made.
    """
    security = certificates(config)
    if security is not None or config.insecure:
        return security
    from distributed import Security

    try:
        made: Security = Security.temporary()
    except ImportError:
        raise InputError(
            "certificates for this run need the package cryptography; pip install cryptography, or name ca_file, "
            "cert_file and key_file"
        ) from None
    return made


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by a name or number that cannot be another."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_network(config: Secured, what: str) -> None:
    """Refuse what is neither encrypted nor on loopback, unless the file has ``insecure: true``.

    Raises
    ------
    InputError
        If it does not.
    """
    if not config.insecure:
        raise InputError(
            f"{what} is beyond this machine and not encrypted: any process that reaches it can run code there; use TLS "
            "(ca_file, cert_file and key_file), or write 'insecure: true' on a private network"
        )
