"""What the ledger answers: sums, lists and hits as values, with their JSON under the names of the report. It never asks."""
