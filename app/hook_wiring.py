"""Put together what is called around tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing

from app.adapters.checked_network import CheckedNetwork
from app.adapters.hooks.http import HttpHooks
from app.adapters.hooks.python import PythonHooks, load_hooks
from app.adapters.plugins import BadPlugin
from app.adapters.signing import Signer
from app.services.hooks import HookBus
from app.settings import BadSettings, Settings


@asynccontextmanager
async def hooking(settings: Settings, network: CheckedNetwork, signer: Signer) -> AsyncIterator[HookBus]:
    """Hooks can be called until the block ends.

    Raises BadSettings, in one line, for a plug-in that cannot be used.
    """
    try:
        plugins = PythonHooks(load_hooks(settings.hook_modules), timeout_s=settings.hook_timeout_s)
    except BadPlugin as bad:
        raise BadSettings(" ".join(str(bad).split())) from bad
    with closing(plugins):
        async with aclosing(HttpHooks(network, signer)) as posting:
            yield HookBus(posting.at, plugins.bound, timeout_s=settings.hook_timeout_s)
