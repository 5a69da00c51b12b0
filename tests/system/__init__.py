"""The whole service over HTTP: a real server, a real Postgres, a model server or a script behind it."""
