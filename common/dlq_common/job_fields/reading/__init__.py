"""How the value of each key is read, from the text of a flag, of YAML or a value of TOML.

A reader returns the value or raises ValueError with a sentence; its caller adds where it was said.
Readers are pure and import no message: `dlq submit --help` loads them.
"""
