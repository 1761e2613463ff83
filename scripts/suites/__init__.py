"""The suites of scripts/conformance, one module each, and what they share."""
