// SPDX-License-Identifier: Apache-2.0
// Every command of `tessera`, for the families that are linked in, this project's among them:
//
//   my_tessera train my-model --data book.txt --out run --max-steps 100
#include <tessera/tools/program.h>

int main(int argc, char** argv) { return tessera::Main(argc, argv, {.name = "my_tessera"}); }
