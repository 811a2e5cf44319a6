"""What is measured of jobs: run times, speeds, the time to resume, and traffic.

`trials` learns run times from a job's own steps, `speeds` how fast elastic jobs run at each size,
`resume_times` what a resume costs, `traffic` and `evidence` what recordings of communication told.
The results are values of jobs, so that plans stay pure, and are stored with them.
"""
