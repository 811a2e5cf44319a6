"""Machines that are rented from providers: ordered, joined, filled, emptied and given back.

`pools` keeps each machine's state table, and `provider_answers` hears its provider. `renting` asks
the rent stage of the policy (`policy.rent`) and carries its plan out. `occupancy` records which job
used which part. `control.pool_config` is what may be rented. Requests to providers are made outside
of the loop (`dlq_master.providers`); machines are rows of the database.
"""
