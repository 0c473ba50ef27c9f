"""Writes the man pages and the completion scripts of shells, from the help of the commands.

`python -m streamkit_cli.shell_files --write ROOT` writes them; `--check ROOT` exits 1 when they are out of date. A wheel installs them
where man and the shells look for them (setup.py).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from streamkit_cli.command_line import COMMANDS, application
from streamkit_cli.reference import HEAD, help_text, keep

_WRITTEN = "Written by `make generate` from the commands."
_BASH = """\
# Completion of streamkit for bash. {written}
_streamkit_completion() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command= options= each
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ $each == -* ]] || {{ command=$each; break; }}
    done
    case $command in
        "") COMPREPLY=($(compgen -W "{commands}" -- "$word")); return ;;
{options}
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
        return
    fi
    # Values, such as topics of the file.
    local IFS=$'\\n'
    COMPREPLY=($(env COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD _STREAMKIT_COMPLETE=complete_bash "$1"))
}}
complete -o default -F _streamkit_completion streamkit
"""
_ZSH = """\
#compdef streamkit
# Completion of streamkit for zsh. {written}
_streamkit() {{
  local command=${{${{words[2,CURRENT-1]:#-*}}[1]}}
  local -a found
  case $command in
    '')
      found=({commands})
      _describe command found
      return ;;
{options}
  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option found
    return
  fi
  # Values, such as topics of the file.
  eval $(env _TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" _STREAMKIT_COMPLETE=complete_zsh streamkit)
}}
if [[ $funcstack[1] == _streamkit ]]; then
  _streamkit "$@"
else
  compdef _streamkit streamkit
fi
"""
_FISH = """\
# Completion of streamkit for fish. {written}
{commands}
{options}
# Values, such as topics of the file.
complete -c streamkit -n 'not __fish_use_subcommand; and not string match -q -- "-*" (commandline -ct)' \\
    -a '(env _STREAMKIT_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS=(commandline -cp) streamkit)'
"""


@dataclass(frozen=True)
class _Option:
    """An option of a command. names: with their hyphens."""

    names: tuple[str, ...]
    summary: str


@dataclass(frozen=True)
class _Command:
    """A command with its options."""

    name: str
    summary: str
    options: tuple[_Option, ...]


def _commands() -> list[_Command]:
    group = typer.main.get_command(application([]))
    commands = []
    for name in COMMANDS:
        command = group.commands[name]  # type: ignore[attr-defined]
        options = [
            _Option((*parameter.opts, *parameter.secondary_opts), _line(parameter.help or ""))
            for parameter in command.params
            if parameter.param_type_name == "option"
        ]
        options.append(_Option(("-h", "--help"), "Show the help."))
        commands.append(_Command(name, _line(command.help), tuple(options)))
    return commands


def _line(text: str) -> str:
    """Return the first sentence of a help text, without its end."""
    return re.split(r"[.:;](?:\s|$)", " ".join(text.partition("\n\n")[0].split()))[0]


def completions() -> dict[str, str]:
    """Return the completion script of each shell, by the path of its file."""
    commands = _commands()
    by_name = {command.name: [name for option in command.options for name in option.names] for command in commands}
    return {
        "bash/streamkit": _BASH.format(
            written=_WRITTEN,
            commands=" ".join([*by_name, "--help", "--verbose", "--version"]),
            options="\n".join(f'        {name}) options="{" ".join(names)}" ;;' for name, names in by_name.items()),
        ),
        "zsh/_streamkit": _ZSH.format(
            written=_WRITTEN,
            commands=" ".join(_described(command.name, command.summary) for command in commands),
            options="\n".join(f"    {command.name}) found=({_zsh_options(command)}) ;;" for command in commands),
        ),
        "fish/streamkit.fish": _FISH.format(
            written=_WRITTEN,
            commands="\n".join(
                f"complete -c streamkit -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.summary)}"
                for command in commands
            ),
            options="\n".join(_fish_option(command, option) for command in commands for option in command.options),
        ),
    }


def _zsh_options(command: _Command) -> str:
    return " ".join(_described(name, option.summary) for option in command.options for name in option.names)


def _described(name: str, summary: str) -> str:
    """Return a name with its description as zsh's _describe takes it."""
    return _quoted(f"{name}:{summary}")


def _quoted(text: str) -> str:
    """Return a word for a shell."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"


def _fish_option(command: _Command, option: _Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    seen = f"__fish_seen_subcommand_from {command.name}"
    return f"complete -c streamkit -n '{seen}' {names} -d {_quoted(option.summary)}"


def man_pages() -> dict[str, str]:
    """Return the man page of streamkit and that of each command, by the name of its file."""
    help_of = help_text([])
    commands = _commands()
    listed = "".join(
        f".TP\n\\fBstreamkit-{_roff(command.name)}\\fR(1)\n{_roff(command.summary)}.\n" for command in commands
    )
    overview = (
        f"{_title('streamkit', 'Kafka Streams topologies in YAML')}"
        ".SH SYNOPSIS\n.B streamkit\n[\\-\\-verbose] COMMAND [OPTIONS]\n"
        f"{_sections(HEAD.partition('<!--')[0])}.SH COMMANDS\n{listed}"
    )
    pages = {"streamkit.1": overview}
    for command in commands:
        pages[f"streamkit-{command.name}.1"] = (
            f"{_title(f'streamkit-{command.name}', command.summary)}{_help_sections(help_of(command.name))}"
            ".SH SEE ALSO\n.BR streamkit (1)\n"
        )
    return pages


def _title(name: str, summary: str) -> str:
    return f'.\\" {_WRITTEN}\n.TH {name.upper()} 1\n.SH NAME\n{_roff(name)} \\- {_roff(summary)}\n'


def _sections(markdown: str) -> str:
    """Return Markdown of headings and paragraphs as roff; the title of the page is left out."""
    parts = []
    for paragraph in markdown.strip().split("\n\n"):
        if paragraph.startswith("# "):
            parts.append(".SH DESCRIPTION\n")
        elif paragraph.startswith("## "):
            parts.append(f".SH {_roff(paragraph[3:].upper())}\n")
        else:
            parts.append(".PP\n" + re.sub(r"`([^`]*)`", r"\\fB\1\\fR", _roff(" ".join(paragraph.split()))) + "\n")
    return "".join(parts)


def _help_sections(text: str) -> str:
    """Return the help of a command as roff: its paragraphs, and its lists of options as they are laid out."""
    usage, *parts = re.split(r"\n\n(?=\S|  \S)", text.strip())
    page = f".SH SYNOPSIS\n.nf\n{_roff(usage.removeprefix('Usage: '))}\n.fi\n.SH DESCRIPTION\n"
    for part in parts:
        head, _, body = part.partition("\n")
        if head.strip() in ("Arguments:", "Options:", "Examples:"):
            page += f".SH {head.strip(' :').upper()}\n.nf\n{_roff(body)}\n.fi\n"
        else:
            page += f".PP\n{_roff(' '.join(part.split()))}\n"
    return page


def _roff(text: str) -> str:
    """Return a text with what roff would take as a request or as a hyphen escaped."""
    escaped = text.rstrip().replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write or check the files below the root of the project; return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print("usage: python -m streamkit_cli.shell_files --write|--check ROOT", file=sys.stderr)
        return 2
    root = Path(arguments[1])
    scripts, pages = root / "cli" / "streamkit_cli" / "completions", root / "deploy" / "man"
    files = {scripts / name: text for name, text in completions().items()}
    files |= {pages / name: text for name, text in man_pages().items()}
    former = {path for folder in (scripts, pages) for path in folder.rglob("*") if path.is_file()} - files.keys()
    return keep({**files, **dict.fromkeys(former)}, arguments[0] == "--write")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
