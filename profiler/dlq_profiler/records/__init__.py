"""Record files of the profiler's C library: their layout, safe reading, and the control file."""
