"""What Chronus is made of, one claim of its section 5 after the other."""
