"""The scheduling policies: pure functions from a view to a plan, built of six stages."""
