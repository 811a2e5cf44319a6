"""Services for the cluster: nodes, queues, teams, loans, rented machines, reservations, usage.

Administration is here too. Each module is one gRPC service. It checks the request, asks the loop or
the read model, and encodes the answer.
"""
