"""Values as people write them: durations, instants, sizes, names, addresses, host lists."""
