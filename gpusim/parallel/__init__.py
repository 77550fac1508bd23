"""A step on several GPUs: its tasks on one of them, with what they exchange."""
