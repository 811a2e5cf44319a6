"""Tables of single decisions: reclaims, sizes, admission, slots, placements, guards."""
