"""Lists of jobs: which jobs are selected, which columns are shown, and the long form of one job."""
