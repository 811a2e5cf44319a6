"""The core's values and state machines: pure, standard library only, no clock, no I/O."""
