"""Pages of the machines. `gpu_map` has the map's values and counts, and `maps` keeps one for all
pages. `gpus` answers with the map, `nodes` with lists and single nodes. `drain` tells the price of
a drain, and `use` the reports.
"""
