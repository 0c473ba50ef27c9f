"""The commands, one module each; `command_line.COMMANDS` lists them."""
