"""What every room shares: time, ids, units, names, errors, config, logs."""
