"""Those who rent machines out, behind one port; used outside of the loop."""
