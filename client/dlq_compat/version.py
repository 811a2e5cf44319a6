"""The answer of the stand-ins to `--version`."""

VERSION = "slurm 22.05.8 (a stand-in of dlq's)"
"""Programs look for the number behind `slurm `: that of the options and words which are followed
here.
"""
VERSION_WORDS = ("-V", "--version")
