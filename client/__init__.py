"""The SDK: connect to a worker, take part in groups, hand tensors to the service and await the results."""
