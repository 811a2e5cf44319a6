"""`dlq-master ca`: a root that may lie offline, and the intermediate that signs for a cluster.

The root's key is made and used on a host of its own. Only a request and certificates travel. The
running master takes an imported authority with `dlq admin ca rotate`.
"""

from __future__ import annotations

from pathlib import Path

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import load_config
from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority, fingerprint, new_key_and_csr
from dlq_common.identity.private_files import read_private
from dlq_master.control.config import MasterConfig
from dlq_master.rpc.people.authorities import NEXT, STAGED

WAITING_KEY = "ca.request.key"
_file = click.Path(path_type=Path, dir_okay=False)
_config = click.option(
    "--config", "config_path", type=_file, default=Path("/etc/dlq/master.toml"), show_default=True
)


@click.group()
def ca() -> None:
    """A root of your own, which may lie offline, and the authority below it that signs.

    \b
      offline:  dlq-master ca create-root --cluster lab --to /safe/root
      master:   dlq-master ca request --out lab.csr
      offline:  dlq-master ca sign --root /safe/root lab.csr --out lab.crt
      master:   dlq-master ca import lab.crt
                dlq admin ca rotate
    """


@ca.command(name="create-root")
@click.option("--cluster", required=True, help="Name of the cluster.")
@click.option("--to", "to", type=click.Path(path_type=Path), required=True, help="New directory.")
def create_root(cluster: str, to: Path) -> None:
    """Make a root that signs authorities: ca.key and ca.crt. Needs no master."""
    try:
        root = Authority.create(cluster, SteadyClock().now_s(), signs_authorities=True)
        to.mkdir(mode=0o700)
        write_private(to / "ca.key", root.key_pem())
        write_public(to / "ca.crt", root.certificate_pem())
    except (OSError, ValueError) as error:
        raise _failure(error) from None
    click.echo(f"root {fingerprint(root.certificate_pem())} in {to}: keep ca.key offline")


@ca.command()
@_config
@click.option("--out", type=_file, required=True, help="The request, for the host of the root.")
def request(config_path: Path, out: Path) -> None:
    """Make the key of a new signing authority, which stays here, and a request for it."""
    try:
        state_dir = load_config(MasterConfig, config_path).cluster.state_dir
        made = new_key_and_csr("dlq signing CA")
        write_private(state_dir / WAITING_KEY, made.key)
        write_public(out, made.request)
    except (OSError, DlqError) as error:
        raise _failure(error) from None
    click.echo(f"{out}: have it signed with `dlq-master ca sign`, then import the answer")


@ca.command()
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Of create-root.")
@click.option("--out", type=_file, required=True, help="The certificate, for the master's host.")
@click.argument("request_file", type=_file)
def sign(root: Path, out: Path, request_file: Path) -> None:
    """Sign REQUEST_FILE with the root. Needs no master."""
    try:
        authority = Authority.load(read_private(root / "ca.key"), (root / "ca.crt").read_bytes())
        now_s = SteadyClock().now_s()
        write_public(out, authority.sign_intermediate(request_file.read_bytes(), now_s))
    except (OSError, ValueError, DlqError) as error:
        raise _failure(error) from None
    click.echo(f"{out}: import it on the master's host with `dlq-master ca import`")


@ca.command(name="import")
@_config
@click.argument("certificate", type=_file)
def import_(config_path: Path, certificate: Path) -> None:
    """Check CERTIFICATE against the key of `request`, and keep both for `dlq admin ca rotate`."""
    try:
        config = load_config(MasterConfig, config_path)
        state_dir, chain = config.cluster.state_dir, certificate.read_bytes()
        made = Authority.load(read_private(state_dir / WAITING_KEY), chain)
        if made.cluster != config.cluster.name:
            raise ConfigError(f"it is of the cluster {made.cluster!r}, not {config.cluster.name!r}")
        if (state_dir / NEXT).exists():
            raise ConfigError("a change of the CA is on its way", hint="dlq admin ca finish")
        write_private(state_dir / STAGED, made.key_pem() + made.chain_pem())
        (state_dir / WAITING_KEY).unlink()
    except (OSError, ValueError, DlqError) as error:
        raise _failure(error) from None
    click.echo("imported: `dlq admin ca rotate` lets it sign")


def _failure(error: Exception) -> click.ClickException:
    hint = f"; {error.hint}" if isinstance(error, DlqError) and error.hint else ""
    return click.ClickException(f"{error}{hint}")
