"""Script plugins: each folder in ``SKYNET_HOME/tools`` with a ``tool.toml`` is one (SK-105).

Whoever can write a plugin gets everybody's input, and runs code as the gateway where no sandbox is wanted. So a plugin
counts only if nobody but the gateway's user or root can have written it; one that does not count, or whose
``tool.toml`` is wrong, is left out with a reason in the log, and the others work.
"""

from skynet.plugins.file import PluginFile, PluginRefused, parse
from skynet.plugins.folders import DIRECTORY, FILE_NAME, MOST_PLUGINS, Plugin, Plugins

__all__ = ["DIRECTORY", "FILE_NAME", "MOST_PLUGINS", "Plugin", "PluginFile", "PluginRefused", "Plugins", "parse"]
