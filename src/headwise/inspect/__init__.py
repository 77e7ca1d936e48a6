"""Looking inside: attention explained step by step."""
