"""The filter `decontaminate`: text of evaluation sets, found in documents and taken out."""
