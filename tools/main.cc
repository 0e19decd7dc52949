// SPDX-License-Identifier: Apache-2.0
// The `tessera` program.
#include "tools/program.h"

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
