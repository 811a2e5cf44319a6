"""From what a user writes (flags, #DLQ lines, TOML, YAML) to one job spec; pure, text in, values
out.
"""
