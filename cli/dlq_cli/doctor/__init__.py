"""Checks of `dlq doctor`. Each check gives one verdict, changes nothing and raises nothing."""
