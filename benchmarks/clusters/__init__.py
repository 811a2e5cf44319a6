"""Many clusters at scale, in a simulation: offers against other ways to choose one."""
