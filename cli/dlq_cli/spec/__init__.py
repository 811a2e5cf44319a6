"""From the user's text (flags, #DLQ lines, TOML, YAML) to one job spec; pure, text in, values
out.
"""
