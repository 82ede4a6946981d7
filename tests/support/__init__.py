"""What tests need to run real agents: a model that is scripted, and a clean place to run in."""
