"""How many documents other thresholds of select steps would keep, counted from the scores and verdicts that are there."""
