"""Services for the cluster: nodes, queues, teams, loans, rented machines, reservations, usage,
administration.

Each module is one gRPC service: it checks the request, asks the loop or the read model, and encodes
the answer.
"""
