"""From events to a report: accumulator, usage, cost, context, verdict. Pure."""
