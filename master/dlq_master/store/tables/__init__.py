"""Tables with modules of their own: accounts, costs, teams, forecasts; and `codec` for all
bodies.
"""
