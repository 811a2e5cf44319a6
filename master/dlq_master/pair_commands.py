"""`dlq-master pair`: the keys and the settings of a master, for a second one that shall stand by.

They travel in one file, encrypted under a passphrase of the operator's. The key of the CA is in it,
so the file is as secret as the CA. Nothing of it is in clear outside the two state directories.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from dlq_common.daemon.config import load_config
from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.private_files import read_private
from dlq_common.text.addresses import is_loopback
from dlq_master.control.config import POSTGRESQL, MasterConfig
from dlq_master.founding import check_owner, give_to
from dlq_master.rpc.people.authorities import (
    CERTIFICATE,
    DONE,
    FILES,
    KEY,
    NEXT,
    PAIR_KEY,
    SEEDS,
    read_authority,
)

PAGE: Final = "docs/running/second-master.md"
SHORTEST: Final = 12  # characters of a passphrase
_MAGIC: Final = b"dlq pair 1\n"
_SALT: Final = 16
_ROWS: Final = "dlq.db"
_SECTION: Final = re.compile(r"\s*\[\s*([\w.]+)\s*\]\s*(?:#.*)?")
_file = click.Path(path_type=Path, dir_okay=False)
_config = click.option(
    "--config", "config_path", type=_file, default=Path("/etc/dlq/master.toml"), show_default=True
)
_passphrase = click.option(
    "--passphrase-file",
    type=_file,
    required=True,
    help="File of mode 0600 with the passphrase, at least 12 characters.",
)


@click.group()
def pair() -> None:
    """Give a second master what it needs to stand by.

    \b
      first host:   dlq-master pair export --to pair.dlq --passphrase-file secret
      second host:  dlq-master pair join pair.dlq --passphrase-file secret \\
                      --state-dir /var/lib/dlq --listen 0.0.0.0:7320 --advertise head2:7320
    """


@pair.command()
@_config
@_passphrase
@click.option("--to", type=_file, required=True, help="The file to write, with mode 0600.")
def export(config_path: Path, passphrase_file: Path, to: Path) -> None:
    """Write the CA and master.toml of this master into one encrypted file."""
    try:
        config = load_config(MasterConfig, config_path)
        if to.exists():
            raise ConfigError(f"{to} exists already")
        content = _exported(config, config_path)
        write_private(to, sealed(content, _passphrase_of(passphrase_file)))
    except (DlqError, OSError) as error:
        raise _failure(error) from None
    click.echo(f"{to}: take it to the second host, and run `dlq-master pair join` there")


@pair.command()
@click.argument("exported", type=_file)
@_config
@_passphrase
@click.option("--state-dir", type=click.Path(path_type=Path), required=True)
@click.option("--listen", required=True, help="HOST:PORT of the API, on this host.")
@click.option("--join-listen", required=True, help="HOST:PORT at which nodes join, on this host.")
@click.option("--advertise", required=True, help="HOST:PORT that others dial.")
@click.option("--owner", default="", help="The account dlq-master will run as.")
def join(
    exported: Path,
    config_path: Path,
    passphrase_file: Path,
    state_dir: Path,
    listen: str,
    join_listen: str,
    advertise: str,
    owner: str,
) -> None:
    """Make a state directory and a master.toml on this host from an exported file."""
    try:
        content = opened(read_private(exported), _passphrase_of(passphrase_file))
        check_owner(owner)
        _refuse_if_there(state_dir, config_path)
        listens = {"api": listen, "join": join_listen, "advertise": advertise}
        config = _written_config(content, config_path, state_dir.absolute(), listens)
        try:
            _write_keys(content, state_dir)
            read_authority(state_dir, config.cluster.name)
        except BaseException:
            for path in (config_path, *(state_dir / name for name in (*FILES, PAIR_KEY))):
                path.unlink(missing_ok=True)
            raise
        if owner:
            give_to(state_dir, owner)
    except (DlqError, OSError, ValueError) as error:
        raise _failure(error) from None
    for line in _next_steps(content, config, config_path):
        click.echo(line)


def sealed(content: Mapping[str, Any], passphrase: bytes) -> bytes:
    """The content under a key that is drawn from the passphrase with a salt of its own."""
    from cryptography.fernet import Fernet

    salt = secrets.token_bytes(_SALT)
    told = json.dumps(content).encode()
    return _MAGIC + salt + Fernet(_key(passphrase, salt)).encrypt(told)


def opened(told: bytes, passphrase: bytes) -> Mapping[str, Any]:
    """The content again. ConfigError for another passphrase, or a file that was changed, or one of
    another release.
    """
    from cryptography.fernet import Fernet, InvalidToken

    if not told.startswith(_MAGIC):
        raise ConfigError("this is no file of `dlq-master pair export`")
    salt, token = told[len(_MAGIC) :][:_SALT], told[len(_MAGIC) + _SALT :]
    try:
        content = json.loads(Fernet(_key(passphrase, salt)).decrypt(token))
    except InvalidToken:
        raise ConfigError("the passphrase is another one, or the file was changed") from None
    if not _is_whole(content):
        raise ConfigError("the file is of another release", hint="export it again by this one")
    return dict(content)


# --- helpers, in order of use ---------------------------------------------------------------------


def _exported(config: MasterConfig, config_path: Path) -> Mapping[str, Any]:
    if config.store.backend != POSTGRESQL:
        raise ConfigError("a second master needs the rows in PostgreSQL", hint=PAGE)
    state_dir = config.cluster.state_dir
    if (state_dir / NEXT).exists() or (state_dir / DONE).exists():
        raise ConfigError(
            "a change of the CA is on its way", hint="dlq admin ca finish, then again"
        )
    read_authority(state_dir, config.cluster.name)
    files = {KEY: read_private(state_dir / KEY)}
    files |= {CERTIFICATE: (state_dir / CERTIFICATE).read_bytes()}
    if (state_dir / SEEDS).exists():
        files[SEEDS] = read_private(state_dir / SEEDS)
    from dlq_master.rpc.people.shared_authority import make_pair_key

    files[PAIR_KEY] = make_pair_key(state_dir)
    return {
        "address": config.listen.advertise or config.listen.api,
        "config": config_path.read_text(),
        "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def _is_whole(content: Any) -> bool:
    """Whether all is there, as text."""
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not {KEY, CERTIFICATE} <= files.keys():
        return False
    told = (content.get("address"), content.get("config"), *files.values())
    return all(isinstance(one, str) for one in told)


def _refuse_if_there(state_dir: Path, config_path: Path) -> None:
    """ConfigError where anything would be replaced, or the rows of another master lie."""
    for path in (config_path, *(state_dir / name for name in (*FILES, PAIR_KEY, _ROWS))):
        if path.exists() or path.is_symlink():
            raise ConfigError(f"there is a master already: {path} exists")


def _passphrase_of(path: Path) -> bytes:
    passphrase = read_private(path).strip()
    if len(passphrase) < SHORTEST:
        raise ConfigError(f"{path}: a passphrase has at least {SHORTEST} characters")
    return passphrase


def _key(passphrase: bytes, salt: bytes) -> bytes:
    drawn = hashlib.scrypt(passphrase, salt=salt, n=1 << 15, r=8, p=1, maxmem=1 << 26, dklen=32)
    return base64.urlsafe_b64encode(drawn)


def _written_config(
    content: Mapping[str, Any], path: Path, state_dir: Path, listens: Mapping[str, str]
) -> MasterConfig:
    """The settings of the first master with the places of this host. ConfigError where its file
    has them in a form that is not understood; then nothing is there.
    """
    values = {"cluster": {"state_dir": str(state_dir)}, "listen": {**listens, "login_socket": ""}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_public(path, with_values(content["config"], values).encode())
    try:
        config = load_config(MasterConfig, path, {})
        own = listens["advertise"]
        if not config.leader.masters:
            masters = {"leader": {"masters": [content["address"], own]}}
            write_public(path, with_values(path.read_text(), masters).encode())
            config = load_config(MasterConfig, path, {})
        elif own not in config.leader.masters:
            raise ConfigError(f"[leader] masters of the first master does not name {own}")
        here = (config.cluster.state_dir, config.listen.api, config.listen.join)
        if here != (state_dir, listens["api"], listens["join"]):
            raise ConfigError(f"{path} names other places; write [cluster] and [listen] by hand")
    except BaseException:
        path.unlink()
        raise
    return config


def with_values(text: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """A TOML file with these values in its sections, right behind their headings."""
    lines, section, found = list[str](), "", set[str]()
    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading[1]
            found.add(section)
            lines += [line, *_lines(values.get(section, {}))]
        elif line.lstrip().startswith("[["):
            section = ""
            lines.append(line)
        elif line.partition("=")[0].strip() not in values.get(section, {}):
            lines.append(line)
    for missing in values.keys() - found:
        lines += ["", f"[{missing}]", *_lines(values[missing])]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Words and lists of words are in TOML as they are in JSON."""
    for key, value in values.items():
        yield f"{key} = {json.dumps(value)}"


def _write_keys(content: Mapping[str, Any], state_dir: Path) -> None:
    """The key of the CA last: with it in place the directory is complete."""
    state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    files = {name: base64.b64decode(text) for name, text in content["files"].items()}
    write_public(state_dir / CERTIFICATE, files[CERTIFICATE])
    for name in (SEEDS, PAIR_KEY):
        if name in files:
            write_private(state_dir / name, files[name])
    write_private(state_dir / KEY, files[KEY])


def _next_steps(
    content: Mapping[str, Any], config: MasterConfig, config_path: Path
) -> Iterator[str]:
    yield f"the keys are in {config.cluster.state_dir}, the settings in {config_path}"
    masters = ", ".join(f'"{one}"' for one in config.leader.masters)
    yield f"at {content['address']}, master.toml has to say: [leader] masters = [{masters}]"
    for name in (config.store.password_file, config.store.tls_ca, config.metrics.token_file):
        if name and not Path(name).exists():
            yield f"still missing on this host: {name}"
    if (metrics := config.listen.metrics) and not is_loopback(metrics):
        yield f"[listen] metrics = {metrics} is of the first host: look whether this one has it"
    yield "then start both masters, and delete the exported file and the passphrase"


def _failure(error: BaseException) -> click.ClickException:
    told = error.what if isinstance(error, DlqError) else str(error)
    hint = getattr(error, "hint", "")
    return click.ClickException("\n".join(filter(None, (told, hint))))
