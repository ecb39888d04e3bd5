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
# Sixteen thousand characters of the demo's book around its planted fact.
xz -dc "$source_dir/assets/demo/book.txt.xz" > "$work/book"
head -c 64000 "$work/book" | tail -c 16000 > "$work/text"
answer=$("$work/ask/ask" "$work/text" "What does Hazel Thorne keep, and where?")
echo "answer: $answer"
[[ $answer == *"silver watch in the lighthouse"* ]]
"$work/prefix/bin/godwit" --version
