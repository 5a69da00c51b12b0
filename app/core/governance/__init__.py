"""Whether a tool call may be carried out: gates and permissions of a project and of a branch."""
