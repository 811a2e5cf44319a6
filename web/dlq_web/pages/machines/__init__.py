"""Pages of the machines. `gpu_map` has the map's values and counts, `maps` asks the master for it,
and `gpus` answers.
"""
