"""The loop and what it owns: stimuli in, one commit a turn, replies and commands out."""
