"""Looking inside: attention explained step by step, and the curves of runs."""
