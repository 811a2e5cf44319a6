"""The SDK: talk to a dlq master from Python.

    from dlq_client.line.connection import connect
    from dlq_client.jobs import Jobs

    with connect() as connection:
        for job in Jobs(connection).list().jobs:
            print(job.job_id, job.name)

Nothing is imported here: a program pays only for the parts it names.
"""
