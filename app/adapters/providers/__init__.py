"""One module per wire format, each declares `PROVIDER`.

`PROVIDER` is called with the shared HTTP client (`http_client.model_client`) and gives a
`ports.provider.Provider`:

    made = [make(client) for make in discover(app.adapters.providers, "PROVIDER").values()]
    providers = {provider.name: provider for provider in made}

What several modules need lies beside this package: the client, the SSE decoder, the fault vocabulary.
"""
