"""Jobs that suffer from being spread: limits of skew and of rho, set or learned from runs."""
