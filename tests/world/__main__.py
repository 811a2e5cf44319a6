"""`python -m world`: run seeds, tell one, shrink one, or play a story.

python -m world seeds --seeds 1000 --seed 1
python -m world tell 17
python -m world shrink 17 --to tests/world/stories
python -m world play tests/world/stories/NAME.json
"""

import sys
import time
from pathlib import Path

import click

from dlq_master.store.sqlite.halves import Reader
from support.proofs import proved
from world.bugs import BUGS, planted
from world.cast.world import World
from world.journal import plot_of
from world.seeds import hunt_all, play, quiet, run, shrunk_seed
from world.shrink import read_story, write_story
from world.stage.plot import draw

STORIES = Path(__file__).parent / "stories"


@click.group()
def main() -> None:
    """A whole cluster in one process, on virtual time, from one tape."""


@main.command()
@click.option("--seeds", default=1000, show_default=True, envvar="SEEDS")
@click.option("--seed", default=1, show_default=True, envvar="SEED", help="the first one")
@click.option("--workers", default=2, show_default=True)
@click.option("--every-state", is_flag=True, help="fail if no seed reaches an interesting state")
def seeds(seeds: int, seed: int, workers: int, every_state: bool) -> None:
    """Run many seeds; the first that break are shrunk, told and written down."""
    begun_s = time.monotonic()
    done = run(seed, seeds, workers)
    click.echo(
        f"{done.seeds} seeds, {done.virtual_s / 3600:.1f} virtual hours, {done.steps} events, "
        f"{time.monotonic() - begun_s:.0f} s"
    )
    for state, count in sorted(done.seen.items()):
        click.echo(f"  {count:8} {state}")
    for state in done.unseen():
        click.echo(f"  no seed has reached: {state}")
    for number, broken in done.broken:
        click.echo(f"seed {number}: {broken}")
    proved(
        "seeds of the world",
        seeds=done.seeds,
        first_seed=seed,
        virtual_hours=round(done.virtual_s / 3600, 1),
        events=done.steps,
        broken=len(done.broken),
        broken_seeds=[number for number, _ in done.broken],
        states_not_reached=done.unseen(),
        took_s=round(time.monotonic() - begun_s),
    )
    for number, _ in done.broken[:2]:
        _shrink(number, Path("build/world"))
    sys.exit(1 if done.broken or (every_state and done.unseen()) else 0)


@main.command()
@click.option("--seed", default=1, show_default=True, help="the first one")
@click.option("--most", default=1000, show_default=True, envvar="MOST", help="seeds for one bug")
@click.option("--workers", default=2, show_default=True)
@click.option("--but", multiple=True, help="leave this one out")
@click.option("--count", default=0, envvar="PLANTED", help="so many of the list; 0: all")
@click.option("--from", "first", default=1, envvar="SEED", help="with --count: the first of them")
@click.argument("names", nargs=-1)
def bugs(
    names: tuple[str, ...],
    but: tuple[str, ...],
    seed: int,
    most: int,
    workers: int,
    count: int,
    first: int,
) -> None:
    """Plant bugs, all or these, and say how many seeds it takes to find each."""
    found = longest = 0
    listed = [*BUGS][first - 1 : first - 1 + count] if count else [*BUGS]
    chosen = [name for name in names or listed if name not in but]
    for one in hunt_all(chosen, seed, most, workers):
        found += bool(one.seeds)
        longest = max(longest, one.seeds)
        after = f"{one.seeds} seeds: {one.broken}" if one.seeds else f"NOT FOUND in {most} seeds"
        click.echo(f"{one.bug} ({BUGS[one.bug].words}): {after}"[:300])
    click.echo(f"{found} of {len(chosen)} planted bugs found")
    proved(
        "planted bugs",
        planted=len(chosen),
        found=found,
        most_seeds=most,
        longest_hunt_seeds=longest,
    )
    sys.exit(0 if found == len(chosen) else 1)


@main.command()
@click.argument("seed", type=int)
def tell(seed: int) -> None:
    """The story of one seed, in full."""
    outcome = play(seed)
    click.echo(str(draw(seed).settings))
    click.echo("\n".join(outcome.lines))


@main.command()
@click.argument("seed", type=int)
@click.option("--to", type=click.Path(path_type=Path), default=Path("build/world"))
@click.option("--bug", default="", help="the planted bug that it finds")
def shrink(seed: int, to: Path, bug: str) -> None:
    """Shrink a seed that breaks to a minimal story, tell it, and write it down."""
    with planted(bug):
        _shrink(seed, to, bug)


@main.command()
@click.argument("database", type=click.Path(path_type=Path, exists=True))
@click.option("--seed", default=1, show_default=True, help="of the trouble")
@click.option("--seeds", default=1, show_default=True)
@click.option("--from", "from_s", default=0.0, help="seconds after its first event")
@click.option("--most", default=600.0, show_default=True, help="seconds of it")
def journal(database: Path, seed: int, seeds: int, from_s: float, most: float) -> None:
    """Play the journal of a master's database (a copy of dlq.db) under the trouble of seeds."""
    broken = 0
    for number in range(seed, seed + seeds):
        plot = plot_of(Reader(database), number, from_s=from_s, most_s=most)
        with quiet():
            outcome = World(number, plot).run()
        broken += bool(outcome.broken)
        click.echo(f"seed {number}: {len(plot.acts)} acts: {outcome.broken or 'sound'}")
    sys.exit(1 if broken else 0)


@main.command(name="play")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def play_story(path: Path) -> None:
    """Play a story, and tell it."""
    story = read_story(path)
    with quiet():
        outcome = story.play()
    click.echo(str(story.plot.settings))
    click.echo("\n".join(outcome.lines))


def _shrink(seed: int, to: Path, bug: str = "") -> None:
    shrunk = shrunk_seed(seed, bug)
    if shrunk is None:
        click.echo(f"seed {seed} does not break")
        return
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"{shrunk.story.name}.json"
    write_story(path, shrunk.story)
    click.echo(f"\nseed {seed} in {shrunk.runs} runs; written to {path}\n")
    click.echo("\n".join(shrunk.lines))


if __name__ == "__main__":
    main()
