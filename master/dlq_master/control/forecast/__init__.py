"""Forecasts: when waiting jobs will probably start, and how good earlier forecasts were.

`forecasts` asks the twin, a process of its own (`twin_process`), and publishes its last answer;
`accuracy` compares first forecasts with real starts. `helper_health` counts failures of the twin
and of the planner. Nothing here decides who runs: without an answer there is only no estimate.
Forecasts are not stored; after a restart the twin is asked anew.
"""
