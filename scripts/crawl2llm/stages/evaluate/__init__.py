"""Evaluates models on held-out text and tasks."""

import os

os.environ["TQDM_DISABLE"] = "1"  # read by tqdm as torch imports it; the project has progress lines of its own
