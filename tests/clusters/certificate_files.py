"""An authority and one certificate of it, as files."""

from __future__ import annotations

from pathlib import Path

from distributed import Security


def write_certificates(folder: Path) -> None:
    """Write ca.pem, cert.pem and key.pem."""
    folder.mkdir(exist_ok=True)
    made = Security.temporary()
    for name, text in {"ca": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}.items():
        (folder / f"{name}.pem").write_text(text)
    (folder / "key.pem").chmod(0o600)


def named(folder: Path) -> str:
    """The lines of a cluster file that name them."""
    return "".join(f"{name}_file: {folder / name}.pem\n" for name in ("ca", "cert", "key"))
