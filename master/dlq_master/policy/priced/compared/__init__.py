"""Methods that the path relinking paper compares with: DP, MILP, FIFO, EDF and priority."""
