"""Images and sounds as vectors: what the tasks that read them have in common."""
