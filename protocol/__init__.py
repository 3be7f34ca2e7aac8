"""What is said between the parts of hocket: messages, frames, tensor specs, errors, limits, authentication."""
