"""Lists of jobs: their selection, their columns, and the long form of one job."""
