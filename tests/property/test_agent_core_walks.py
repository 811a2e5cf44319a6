"""Random faults against the agent's core: whatever happens, nothing runs twice and no end is
lost.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Hello, Launch, Phase, RankReport
from support.agent_bench import AgentBench, a_launch, a_stop
from support.extent import times

ORDER = {
    Phase.PREPARING: 0,
    Phase.STARTED: 1,
    Phase.STOPPING: 2,
    Phase.EXITED: 3,
    Phase.START_FAILED: 3,
    Phase.ABSENT: 3,
}
JOBS = (
    "run_for=3 exit_code=1",
    "run_for=40 beat={}",
    "run_for=1000 beat={} saves_for=2",
    "run_for=1000 ignores_signals=yes",
    "start_error=no_such_file",
)
CAUSES = ("preempt", "pause", "cancel", "gang_failure", "drain")


@dataclass
class Walk:
    """A bench, a master's view of it, and the dice."""

    rng: random.Random
    bench: AgentBench = field(default_factory=AgentBench)
    placed: dict[RankKey, Launch] = field(default_factory=dict)
    stopped: set[RankKey] = field(default_factory=set)
    phases: dict[RankKey, Phase] = field(default_factory=dict)
    epoch: int = 7
    connected: bool = False

    def step(self) -> None:
        """One thing happens."""
        act = self.rng.choice(
            (
                self.launch,
                self.launch,
                self.repeat_launch,
                self.stop,
                self.connect,
                self.connect,
                self.cut,
                self.kill_agent,
                self.pass_time,
                self.pass_time,
                self.change_weather,
            )
        )
        act()
        self.check()

    def launch(self) -> None:
        if not self.connected:
            return
        job = len(self.placed) + 1
        launch = a_launch(job, epoch=self.epoch, does=self.rng.choice(JOBS))
        self.placed[launch.key] = launch
        self.bench.order(launch, epoch=self.epoch)

    def repeat_launch(self) -> None:
        if self.connected and self.placed:
            launch = self.rng.choice(list(self.placed.values()))
            self.bench.order(launch, epoch=self.rng.choice((self.epoch, self.epoch - 1)))

    def stop(self) -> None:
        if self.connected and self.placed:
            launch = self.rng.choice(list(self.placed.values()))
            self.stopped.add(launch.key)
            stop = a_stop(
                launch,
                self.rng.choice(CAUSES),
                self.rng.choice((0.0, 5.0, 60.0)),
                delay_s=self.rng.choice((0.0, 0.0, 10.0)),
            )
            self.bench.order(stop, epoch=self.epoch)

    def connect(self) -> None:
        if self.connected:
            return
        self.epoch += self.rng.choice((0, 0, 1))
        living = [key for key in self.placed if ORDER[self.phase(key)] < 3]
        wanted = [self.placed[key] for key in living if key not in self.stopped]
        stops = tuple(
            a_stop(self.placed[key], grace_s=5.0) for key in living if key in self.stopped
        )
        self.bench.connect(*wanted, epoch=self.epoch, stops=stops)
        self.connected = self.bench.core.uplink.up

    def cut(self) -> None:
        self.bench.cut()
        self.connected = False

    def kill_agent(self) -> None:
        self.note_phases()
        self.bench.restart(down_s=self.rng.choice((0.0, 5.0, 100.0)))
        self.connected = False

    def pass_time(self) -> None:
        self.bench.run(self.rng.choice((0.25, 2.0, 15.0)))
        self.connected = self.bench.core.uplink.up

    def change_weather(self) -> None:
        bench, coin = self.bench, self.rng.random
        bench.deaf = coin() < 0.2
        bench.acks = coin() < 0.7
        bench.answers_looks = coin() < 0.8
        bench.answers_heartbeats = coin() < 0.8
        bench.released = coin() < 0.8

    def calm_down(self) -> None:
        """All faults end, and the master wants everything gone."""
        bench = self.bench
        bench.deaf, bench.acks, bench.answers_looks = False, True, True
        bench.answers_heartbeats, bench.released = True, True
        self.stopped |= self.placed.keys()
        self.cut()
        self.connect()
        bench.run(90, step_s=0.5)
        self.check()

    def phase(self, key: RankKey) -> Phase:
        return self.phases.get(key, Phase.PREPARING)

    def check(self) -> None:
        self.note_phases()
        starts = Counter(self.bench.starts)
        assert not [key for key, count in starts.items() if count > 1], "started twice"
        for key, launch in self.placed.items():
            if ORDER[self.phase(key)] == 3:
                assert not self.bench.runs(launch), f"{key} runs after its end was reported"
        assert self.bench.core.highest_epoch <= self.epoch

    def note_phases(self) -> None:
        """Take in what was said since the last look; phases never go back."""
        for message in self.bench.transport.sent[self.seen() :]:
            reports: tuple[RankReport, ...] = ()
            if isinstance(message, Hello):
                reports = message.ranks
            elif isinstance(message, RankReport):
                reports = (message,)
            for report in reports:
                before = self.phase(report.key)
                assert ORDER[report.phase] >= ORDER[before], f"{report.key}: {before} then {report}"
                self.phases[report.key] = report.phase
        self.bench.transport.__dict__["seen"] = len(self.bench.transport.sent)

    def seen(self) -> int:
        return int(self.bench.transport.__dict__.get("seen", 0))


@settings(max_examples=times(25, 150), deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_runs_twice_and_every_end_is_told(seed: int) -> None:
    walk = Walk(random.Random(seed))
    for _ in range(60):
        walk.step()
    walk.calm_down()
    for key, launch in walk.placed.items():
        assert not walk.bench.runs(launch), f"{key} still runs"
        assert ORDER[walk.phase(key)] == 3, f"{key} ended as {walk.phase(key)}"
    walk.cut()
    assert walk.bench.connect(epoch=walk.epoch).ranks == ()
