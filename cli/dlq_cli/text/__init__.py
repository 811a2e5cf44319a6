"""Answers of the master as text for people, one module for each kind of answer."""
