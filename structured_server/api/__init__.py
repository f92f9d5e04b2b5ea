"""The HTTP surface: routes, errors, authentication, logging, start-up."""
