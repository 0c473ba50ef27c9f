#!/usr/bin/env bash
# The steps of action.yml, which gives the inputs as variables: steps.sh install|validate|test|diff|describe
set -euo pipefail

# Topologies that differ from $BASE and are there in both.
changed() {
  git cat-file -e "$BASE" 2>/dev/null || git fetch --quiet --depth 1 origin "$BASE"
  # shellcheck disable=SC2086 - the paths are words
  git diff --name-only --diff-filter=M "$BASE" -- $PATHS | grep -E '\.ya?ml$' | grep -v '\.test\.ya\?ml$' |
    xargs -r grep -lE "^[[:space:]]*[\"']?streamkit[\"']?[[:space:]]*:" || true
}

case "$1" in
  install)
    # An environment of its own: the runner's Python may refuse packages.
    python3 -m venv "$RUNNER_TEMP/streamkit"
    "$RUNNER_TEMP/streamkit/bin/pip" install --quiet --disable-pip-version-check "$INSTALL"
    echo "$RUNNER_TEMP/streamkit/bin" >> "$GITHUB_PATH"
    ;;
  validate)
    options=(--format github)
    [ "$STRICT" != true ] || options+=(--strict)
    # shellcheck disable=SC2086
    streamkit validate $PATHS "${options[@]}"
    ;;
  test)
    # shellcheck disable=SC2086
    streamkit test $PATHS --format github
    ;;
  diff)
    found=0
    files=$(changed)
    # All files of the base: topologies include others.
    base=$RUNNER_TEMP/streamkit-base
    git worktree add --quiet --force --detach "$base" "$BASE"
    while IFS= read -r file; do
      # The folder of the base is gone when the annotation is read.
      [ -z "$file" ] || streamkit diff "$base/$file" "$file" --format github | sed "s|$base/$file|OLD|g" || found=$?
    done <<< "$files"
    git worktree remove --force "$base"
    # 1: something is to be done before the new version starts. 2: a file that can't be compared.
    [ "$found" -lt 2 ] || exit "$found"
    [ "$FAIL" != true ] || exit "$found"
    ;;
  describe)
    page=$RUNNER_TEMP/streamkit-describe.md
    : > "$page"
    while IFS= read -r file; do
      [ -z "$file" ] || printf '### %s\n\n```mermaid\n%s\n```\n\n' "$file" "$(streamkit describe "$file" --format mermaid)" >> "$page"
    done <<< "$(changed)"
    if [ "$WHERE" = comment ] && [ -s "$page" ]; then
      gh pr comment "$PULL_REQUEST" --body-file "$page"
    else
      cat "$page" >> "$GITHUB_STEP_SUMMARY"
    fi
    ;;
  *)
    echo "steps.sh: there is no step $1" >&2
    exit 2
    ;;
esac
