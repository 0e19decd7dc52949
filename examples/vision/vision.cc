// Every command of `tessera`, ResNet-18 among its models:
//
//   vision train resnet18-mnist --task image_classification --data fashion-mnist --out run
//     --batch-size 64 --max-steps 300 --lr 1e-3   (one line)
#include "tools/program.h"

int main(int argc, char** argv) { return tessera::Main(argc, argv, {.name = "vision"}); }
