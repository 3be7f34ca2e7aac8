"""The ``hocket`` command: runs the services and jobs, and shows what they do."""
