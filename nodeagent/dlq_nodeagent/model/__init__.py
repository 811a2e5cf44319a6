"""The agent's mind: values and pure functions; no clock, no file, no network."""
