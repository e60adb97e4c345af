"""What happens around the steps of a training: one module for each callback of the loop (training/loop.py)."""
