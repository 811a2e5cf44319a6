"""Measurements of jobs: run times, speeds, the time to resume, and traffic.

`trials` learns run times from a job's own steps. `speeds` learns how fast elastic jobs run at each
size. `resume_times` learns the cost of a resume, `first_steps` that of a start, and it tells jobs
that hang there. `traffic` and `evidence` collect recordings of communication. The results are
values of jobs, so that plans stay pure, and are stored with them.
"""
