"""Methods that the path relinking paper compares with: dynamic program, integer program, FIFO, EDF,
priority.
"""
