"""HTTP and SSE: request to call, result to response."""
