#!/usr/bin/env bash
# Installs the build into a temporary prefix, builds examples/ask against the installed package alone, and runs it.
#   run.sh SOURCE_DIR BUILD_DIR CXX_COMPILER
set -euo pipefail
source_dir=$1 build_dir=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/prefix" > "$work/install.log"
cmake -S "$source_dir/examples/ask" -B "$work/ask" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release > "$work/configure.log"
cmake --build "$work/ask"
printf 'It was a quiet evening. The special magic number for amber-falcon is 4817263. Nobody spoke of it again.' > "$work/text"
# The built-in model wants company around a fact: pad with plain sentences.
for i in $(seq 1 200); do printf ' The road went on through fields and past farms, and nobody met them on the way.' >> "$work/text"; done
answer=$("$work/ask/ask" "$work/text" "What is the special magic number for amber-falcon?")
echo "answer: $answer"
[[ $answer == *4817263* ]]
"$work/prefix/bin/godwit" --version
