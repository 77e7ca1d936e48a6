"""What a task adds around the model: text in, text out."""
