"""Whether servers are lent by the load of the inference side: switched by people, and kept over
restarts.
"""

from dlq_common.errors import IllegalTransition
from dlq_master.control.loans.state import SWITCH, SwitchedOff, written
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.loans import SwitchLoans


def _switched(_turn: Turn, _ask: SwitchLoans, _word: str) -> None:
    return None


@once(_switched)
def switch(turn: Turn, ask: SwitchLoans) -> Done[None]:
    """The change holds from now on; lent servers stay lent. The record keeps the name of the person
    that switched it off first.
    """
    loans = turn.state.loans
    if not turn.state.config.loans.load:
        raise IllegalTransition(
            "no load is followed: there is nothing to switch",
            hint="name its source in master.toml: [loans] load",
        )
    if ask.on == (loans.off is None):
        return Done(None, "")
    loans.off = None if ask.on else SwitchedOff(ask.caller.actor, turn.now_s)
    turn.batch.meta[SWITCH] = written(loans.off)
    kind = "loans_auto_on" if ask.on else "loans_auto_off"
    turn.note(
        kind, actor=ask.caller.actor, cause="the load is followed" if ask.on else "people lend"
    )
    return Done(None, "")
