"""Smaller models, by pruning and quantization, and files to give away."""
