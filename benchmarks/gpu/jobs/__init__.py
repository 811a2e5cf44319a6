"""Programs that run as jobs: `python -m benchmarks.gpu.jobs.NAME`, with this tree in PYTHONPATH.

They need the standard library; trainings need PyTorch too, or numpy for the stand-in.
"""
