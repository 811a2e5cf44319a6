"""Results of a replay: the JSON document, the table for people, and files."""
