"""Pages that change something. `acting` gives an order to many jobs, and `submitting` queues a job.
`pasted` reads the text of a spec as `dlq submit` reads a file, and `asked` the body of a request.
"""
